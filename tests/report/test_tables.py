"""Tables as text, Markdown, LaTeX, CSV, JSON and HTML: the same numbers, and names stay text."""

import csv
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from io import StringIO
from typing import get_args

import pytest
from tests.support.records import PACS, complete, run, scored

from cicf.report.compare import compared
from cicf.report.tables import Format, render
from cicf.results.published import REBUILT
from cicf.results.runs import FoundRun
from cicf.results.table import Table
from cicf.results.tabulate import make_tables

FORMATS = get_args(Format)
ODD = ("a|b", "a_b & c", "<script>", "100 % {x}", "\x1b[31mred", "line\nbreak", "[/bold] :smile:")
"""Names that some format could take for something else than a name."""
PERCENTS = {
    seed: dict(zip(PACS, (77.1 + seed, 75.5, 95.0, 70.0 - seed), strict=True)) for seed in (0, 1)
}


def full() -> list[FoundRun]:
    better = {seed: {name: p + 2 for name, p in each.items()} for seed, each in PERCENTS.items()}
    return [*complete(PERCENTS), *complete(better, method="cicf")]


def tables(runs: list[FoundRun] | None = None, against: str | None = None) -> tuple[Table, ...]:
    made = make_tables(full() if runs is None else runs).tables
    return made if against is None else compared(made, against)


def odd() -> tuple[Table, ...]:
    return tables([run(70.0, target=each, data="mine", domains=ODD, path=each) for each in ODD])


def records(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(StringIO(text)))


class Page(HTMLParser):
    """Collects the tags of a page, and the texts of its table's fields."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.open: list[str] = []
        self.fields: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.tags.append(tag)
        if tag != "meta":
            self.open.append(tag)
        if tag in ("th", "td"):
            self.fields.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if {"th", "td"} & set(self.open):
            self.fields[-1] += data


def page(text: str) -> Page:
    found = Page()
    found.feed(text)
    found.close()
    assert found.open == []
    return found


def latex_lines(text: str) -> Iterator[str]:
    """Yield the lines between the rules of the first table."""
    body = text.split(r"\toprule")[1].split(r"\bottomrule")[0]
    yield from (line for line in body.splitlines() if "&" in line)


def in_the_text(text: str, label: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(f"{label} ")]
    return re.split(r"\s{2,}", line.replace("● ", "").strip())


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_ends_with_one_line_break(format_: Format) -> None:
    text = render(tables(), format_)
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


def test_text_of_four_domains_fits_in_100_columns() -> None:
    lines = render(tables(against="erm"), "text").splitlines()
    assert max(map(len, lines)) <= 100


def test_text_has_mean_and_deviation() -> None:
    # 77.1 and 78.1, 75.5 twice, 95.0 twice, 70.0 and 69.0; the averages of both seeds are 79.4.
    assert in_the_text(render(tables(), "text"), "ERM") == [
        "ERM",
        "77.6±0.7 (2)",
        "75.5±0.0 (2)",
        "95.0±0.0 (2)",
        "69.5±0.7 (2)",
        "79.4±0.0 (2)",
    ]


def test_text_has_the_paper_and_the_difference_below() -> None:
    lines = render(tables(), "text").splitlines()
    place = next(i for i, line in enumerate(lines) if line.startswith("ERM "))
    assert lines[place + 1].split() == ["paper", "77.0", "75.9", "96.0", "69.2", "79.5", "(79.525)"]
    assert lines[place + 2].split() == ["difference", "+0.6", "-0.4", "-1.0", "+0.3", "-0.1"]


def test_text_marks_the_best_of_each_column_and_says_how() -> None:
    text = render(tables(), "text")
    (line,) = [line for line in text.splitlines() if line.startswith("ERM+CICF ")]
    assert line.count("●") == 5
    assert "●: the best mean of its column" in text


def test_text_of_many_domains_is_wider_instead_of_broken() -> None:
    names = tuple(f"domain_{i:02d}" for i in range(12))
    text = render(tables([run(70.0, target=n, data="x", domains=names) for n in names]), "text")
    (head,) = [line for line in text.splitlines() if line.startswith("method")]
    assert head.split() == ["method", *names, "Avg."]


def test_cells_say_their_seeds_where_these_differ() -> None:
    text = render(tables([*complete(PERCENTS), run(72.0, seed=2)]), "markdown")
    # 70, 69 and 72 deviate from 70.33 by -0.33, -1.33 and 1.67: √(4.67 / 2) = 1.53.
    assert "| 70.3 ± 1.5 (3) |" in text
    assert "| 75.5 ± 0.0 (2) |" in text


def test_text_with_seeds_of_every_cell_fits_in_100_columns() -> None:
    runs = [*full(), run(72.0, seed=2), run(73.0, seed=2, method="cicf")]
    text = render(tables(runs, "erm"), "text")
    assert "(3)" in text
    assert max(map(len, text.splitlines())) <= 100


def test_text_has_intervals_of_the_paired_differences() -> None:
    text = render(tables(against="erm"), "text").split("paired differences", 1)[1]
    (line,) = [line for line in text.splitlines() if line.startswith("ERM+CICF vs ERM")]
    assert line.split()[-5:] == ["+2.0"] * 5
    assert text.count("[+2.00, +2.00]") == 5


def test_a_difference_that_rounds_to_zero_has_no_sign() -> None:
    assert "difference    0.0" in re.sub(r" {2,}", "    ", render(tables([run(69.2)]), "text"))


@pytest.mark.parametrize("format_", ["text", "markdown", "latex", "json", "html"])
def test_footnotes_are_in_every_document(format_: Format) -> None:
    text = render(tables(), format_)
    assert "leave-one-domain-out; sources split by the given lists" in text
    assert "last epoch (headline)" in text
    assert "fingerprint 0123456789abcdef" in text


@pytest.mark.parametrize("format_", FORMATS)
def test_a_rebuild_of_the_data_is_told_in_every_format(format_: Format) -> None:
    names = ("mnist", "syn")
    made = run(70.0, data="digits-dg-rebuilt", model="digits_cnn", target="syn", domains=names)
    text = render(tables([made]), format_).replace("&#39;", "'")
    assert REBUILT in " ".join(text.split())


@pytest.mark.parametrize("format_", ["text", "markdown", "latex", "json", "html"])
def test_an_oracle_says_so_in_its_title(format_: Format) -> None:
    epoch = scored(1, {"sketch": 50.0})
    made = make_tables([run(0.0, last=epoch, best=epoch, epochs=(epoch,))], select="oracle")
    assert "ORACLE: pacs, resnet18" in render(made.tables, format_)


def test_markdown_has_the_same_number_of_fields_on_every_line() -> None:
    lines = [line for line in render(odd(), "markdown").splitlines() if line.startswith("|")]
    counts = {len(re.findall(r"(?<!\\)\|", line)) for line in lines}
    assert counts == {len(ODD) + 3}


def test_markdown_has_the_best_in_bold_and_the_star_of_autoaugment_as_a_star() -> None:
    runs = [run(70.0), run(71.0, augment="autoaugment")]
    assert "| ERM\\* | **71.0 (1)** |" in render(tables(runs), "markdown")


def test_markdown_shows_no_html() -> None:
    text = render(odd(), "markdown")
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_latex_has_as_many_fields_as_columns_on_every_line() -> None:
    for made in (tables(against="erm"), odd()):
        text = render(made, "latex")
        columns = re.search(r"\\begin\{tabular\}\{(l r*)\}", text, re.VERBOSE)
        assert columns is not None
        counts = {len(re.findall(r"(?<!\\)&", line)) for line in latex_lines(text)}
        assert counts == {len(columns[1]) - 1}


def test_latex_has_balanced_braces_and_environments() -> None:
    text = render((*tables(against="erm"), *odd()), "latex")
    bare = re.sub(r"\\[{}]", "", text.replace(r"\\", ""))
    depth = 0
    for sign in bare:
        depth += (sign == "{") - (sign == "}")
        assert depth >= 0
    assert depth == 0
    assert re.findall(r"\\begin(\{\w+\})", text) == 3 * ["{table}", "{tabular}", "{minipage}"]
    assert sorted(re.findall(r"\\end(\{\w+\})", text)) == sorted(
        3 * ["{table}", "{tabular}", "{minipage}"]
    )


@pytest.mark.parametrize(
    "text", [r"a\_b \& c", r"100 \% \{x\}", r"\textless{}script\textgreater{}", r"a\textbar{}b"]
)
def test_latex_escapes_names(text: str) -> None:
    (head, *_) = latex_lines(render(odd(), "latex"))
    assert text in head


def test_latex_has_the_best_in_bold_and_minus_signs() -> None:
    text = render(tables(), "latex")
    assert r"\textbf{79.6 $\pm$ 0.7 (2)}" in text
    assert "& $-$1.0 &" in text


def test_latex_is_plain_ascii_where_names_are() -> None:
    runs = [*full(), run(70.0, method="mixstyle")]
    assert render(tables(runs, "erm"), "latex").isascii()


def test_csv_has_one_line_for_every_cell_and_average() -> None:
    found = records(render(tables(), "csv"))
    assert [(each["row"], each["kind"], each["column"]) for each in found] == [
        (row, kind, column)
        for row in ("ERM", "ERM+CICF")
        for kind, column in [*(("column", name) for name in PACS), ("average", "average")]
    ]


def test_csv_has_what_a_program_needs() -> None:
    (found,) = [
        each
        for each in records(render(tables(against="erm"), "csv"))
        if (each["method"], each["column"]) == ("cicf", "sketch")
    ]
    assert (found["n"], found["seeds"], found["values"]) == ("2", "0 1", "72.0 71.0")
    assert float(found["mean"]) == pytest.approx(71.5)
    assert float(found["std"]) == pytest.approx(0.5**0.5)
    assert (found["published"], found["best"]) == ("74.5", "1")
    assert float(found["difference"]) == pytest.approx(-3.0)
    assert found["fingerprint"] == "0123456789abcdef"
    assert found["protocol"].startswith("leave-one-domain-out")
    assert found["compared_with"] == "ERM"
    assert float(found["paired_difference"]) == pytest.approx(2.0)


def test_csv_keeps_names_as_they_are() -> None:
    assert {each["column"] for each in records(render(odd(), "csv"))} == {*ODD, "average"}


def test_csv_keeps_the_digits_of_the_paper() -> None:
    names = ("caltech", "sun")
    made = run(90.0, method="jigen", data="vlcs", model="alexnet", target="caltech", domains=names)
    assert records(render(tables([made]), "csv"))[0]["published"] == "96.93"


def test_json_comes_back_as_the_tables() -> None:
    made = tables(against="erm")
    found = json.loads(render(made, "json"))["tables"]
    assert [Table.model_validate_json(json.dumps(each)) for each in found] == list(made)


def test_json_keeps_names_as_they_are() -> None:
    assert sorted(json.loads(render(odd(), "json"))["tables"][0]["columns"]) == sorted(ODD)


def test_html_is_a_whole_page_with_all_fields() -> None:
    found = page(render(tables(), "html"))
    assert found.tags[:2] == ["html", "head"]
    start = found.fields.index("ERM")
    assert found.fields[start : start + 3] == ["ERM", "77.6 ± 0.7 (2)", "75.5 ± 0.0 (2)"]


def test_html_shows_names_as_text() -> None:
    found = page(render(odd(), "html"))
    assert "script" not in found.tags
    assert "<script>" in found.fields
    assert "a_b & c" in found.fields


def test_html_has_the_best_in_bold() -> None:
    assert page(render(tables(), "html")).tags.count("strong") == 5


def test_text_writes_out_what_would_move_the_cursor() -> None:
    text = render(odd(), "text")
    assert "\x1b" not in text
    assert r"\x1b[31mred" in text


def test_text_takes_no_name_for_markup() -> None:
    assert "[/bold] :smile:" in render(odd(), "text")


def test_several_tables_make_one_document() -> None:
    made = tables([run(70.0), run(60.0, model="resnet50")])
    assert [len(made), render(made, "html").count("<html"), render(made, "csv").count("data,")] == [
        2,
        1,
        1,
    ]


def test_rendering_loads_no_torch() -> None:
    script = "import sys, cicf.report.tables; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"
