"""The page as a file: it stands by itself, names stay text, and everything has its place."""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest
from tests.support.pages import Read, pacs_runs, read_page
from tests.support.records import PACS, run, write

from cicf.core import ResultError
from cicf.report.figures import COLOURS
from cicf.report.page import DARK_COLOURS, make_sections, render_page
from cicf.report.page_views import Views
from cicf.results.runs import FoundRun, read_runs

ODD = ("<script>alert(1)</script>", '"&<', "{{ 7 * 7 }}", "</style>", "--><b>")
"""Names that a page could take for something else than a name."""


def page(runs: list[FoundRun], **over: object) -> str:
    sections = make_sections(runs).sections
    words = {"title": "Results", "command": "cicf report runs -o page.html", "version": "1.2.3"}
    return render_page(sections, [Views()] * len(sections), **{**words, **over})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[FoundRun]:
    return list(read_runs([pacs_runs(tmp_path_factory.mktemp("runs"))]).found)


@pytest.fixture(scope="module")
def pacs(runs: list[FoundRun]) -> str:
    return page(runs)


@pytest.fixture(scope="module")
def read(pacs: str) -> Read:
    return read_page(pacs)


def named(names: tuple[str, ...]) -> list[FoundRun]:
    """Return runs whose data, domains, folders and options have these names."""
    return [
        run(
            70.0 + place,
            target=name,
            data=names[0],
            domains=names,
            path=f"{name}-{method}",
            method=method,
            options={"method.note": names[-1]},
        )
        for place, name in enumerate(names)
        for method in ("erm", "cicf")
    ]


def test_the_page_asks_nothing_of_the_network(pacs: str, read: Read) -> None:
    assert "http://" not in pacs.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in pacs
    assert "@import" not in pacs
    assert not read.all("link")
    for tag, attributes in read.tags:
        if "src" in attributes:
            assert (attributes["src"] or "").startswith("data:"), tag


def test_the_policy_lets_the_pages_own_style_and_script_through_and_no_others(read: Read) -> None:
    policy = next(each for each in read.all("meta") if "http-equiv" in each)["content"] or ""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["img-src"] == "data:"
    assert rules["style-src"] == source(read.inside("style")[0])
    assert rules["script-src"] == source(read.inside("script")[-1])
    assert not [attributes for _, attributes in read.tags if "style" in attributes]
    assert not [name for _, found in read.tags for name in found if name.startswith("on")]


def test_places_are_named_once_and_every_link_leads_to_one(read: Read) -> None:
    ids = [each["id"] for _, each in read.tags if "id" in each]
    assert len(ids) == len(set(ids))
    for link in read.all("a"):
        assert (link["href"] or "").removeprefix("#") in ids


def test_ours_stands_beside_the_papers_with_its_difference(read: Read) -> None:
    words = [text.strip() for text in read.inside("th")]
    for name in ("method", *PACS, "Avg.", "ERM", "ERM+CICF", "paper", "difference"):
        assert name in words
    assert "ERM+CICF vs ERM" in words


def test_numbers_to_sort_by_have_all_their_digits(read: Read) -> None:
    values = [each["data-value"] for each in read.all("td") if "data-value" in each]
    # 9.7 points of distance between domains, and half a point from the two seeds.
    assert any(float(value or "nan") == pytest.approx(70.0 + 9.7 + 0.5) for value in values)


def test_names_from_the_data_stay_text_wherever_they_stand() -> None:
    odd, plain = (
        read_page(page(named(names), title=names[0], command=names[1], skipped=names[2:]))
        for names in (ODD, ("ddd", "bbb", "eee", "ccc", "aaa"))
    )
    assert [tag for tag, _ in odd.tags] == [tag for tag, _ in plain.tags]
    for name in ODD:
        assert name in odd.text


def test_data_for_scripts_cannot_end_their_block(tmp_path: Path) -> None:
    for place, name in enumerate(ODD):
        folder = write(tmp_path, run(70.0, path=str(place), options={"method.note": name}))
        row = {"kind": "epoch", "epoch": 1, "validation": {"theta": {"all": 50.0}}}
        (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    found = read_page(page(list(read_runs([tmp_path]).found)))
    block, _ = [text for tag, text in found.texts if tag == "script"]
    assert "<" not in block
    labels = [label for label, _ in json.loads(block)["labels"]]
    assert sorted(labels) == sorted(f"ERM (method.note={name})" for name in ODD)


def test_runs_without_curves_say_so(read: Read) -> None:
    assert "No run of these has left a curve." in read.text
    assert "has no metrics.jsonl" in read.text


@pytest.mark.parametrize(("count", "is_folded"), [(5, False), (6, True)])
def test_a_long_list_of_gaps_is_folded(count: int, is_folded: bool) -> None:
    gaps = [f"gap {place}" for place in range(count)]
    text = read_page(page([run(70.0)], skipped=gaps)).text
    assert all(gap in text for gap in gaps)
    assert (f"What is missing, in {count} sentences" in text) == is_folded


def test_every_run_tells_its_folder_its_command_and_its_fingerprint(read: Read) -> None:
    assert read.text.count("cicf train pacs --root DIR") == 16
    assert read.text.count("data fingerprint") == 16


def test_the_same_runs_are_the_same_page(runs: list[FoundRun], pacs: str) -> None:
    assert page(runs) == pacs


def test_without_erm_nothing_is_compared() -> None:
    (section,) = make_sections([run(70.0, method="cicf"), run(71.0, method="maml")]).sections
    assert section.differences is None
    (section,) = make_sections([run(70.0)]).sections
    assert section.differences is None


def test_several_rows_of_erm_leave_open_which_is_meant() -> None:
    runs = [run(70.0, options={"optim.lr": lr}, path=f"{lr}") for lr in (0.1, 0.2)]
    assert make_sections(runs).sections[0].differences is None


def test_another_row_can_be_compared_with() -> None:
    runs = [run(70.0, method="maml"), run(71.0, method="cicf")]
    (section,) = make_sections(runs, against="maml").sections
    assert section.differences is not None
    assert section.differences.lines[0].label == "ERM+CICF vs ERM+MAML"
    with pytest.raises(ResultError, match="--compare 'nobody'"):
        make_sections(runs, against="nobody")


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours by the Web Content Accessibility Guidelines."""

    def luminance(colour: str) -> float:
        parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1])
def test_texts_and_curves_stand_out_from_the_page(pacs: str, theme: int) -> None:
    blocks = re.findall(r"\{[^{}]*--page:[^{}]*\}", pacs)
    colours = dict(re.findall(r"--(\w+): (#\w{6})", blocks[theme]))
    for ground in (colours["page"], colours["card"], colours["shade"]):
        assert contrast(colours["ink"], ground) >= 7
        assert contrast(colours["soft"], ground) >= 4.5
        assert contrast(colours["accent"], ground) >= 4.5
        assert contrast(colours["wrong"], ground) >= 4.5
    if theme:
        assert len(DARK_COLOURS) == len(COLOURS)
        assert min(contrast(each, colours["card"]) for each in DARK_COLOURS) >= 5
