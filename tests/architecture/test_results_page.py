"""What the pages of results say is what their records hold."""

import re
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from tests.support.runs import run_cli

from cicf.report.compare import compared
from cicf.report.intervals import average_interval
from cicf.results import Record
from cicf.results.runs import read_runs
from cicf.results.table import Interval
from cicf.results.tabulate import make_tables
from cicf.training.costs import PHASES

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = "\n".join(path.read_text() for path in sorted(RESULTS.glob("*.md")))
"""All of them; no two have the same table."""
TRIALS = re.findall(
    r"^\| (\w+) \| \[[^\]]+\]\((search/[^)]+)\) \| ([\d.]+) \|.*\| ([\d.]+) \| ([\d.]*) \|$",
    PAGE,
    flags=re.MULTILINE,
)


def test_every_trial_of_the_search_has_its_row() -> None:
    records = {str(path.relative_to(RESULTS)) for path in RESULTS.glob("search/*/result.json")}
    assert {file for _, file, *_ in TRIALS} == records
    assert len(TRIALS) == len(records) > 30


@pytest.mark.parametrize(("method", "file", "beta", "theta", "dagger"), TRIALS)
def test_a_row_of_the_search_is_its_record(
    method: str, file: str, beta: str, theta: str, dagger: str
) -> None:
    record = Record.model_validate_json((RESULTS / file).read_text())
    config = record.config
    assert (config["method"]["name"], config["optim"]["lr"]) == (method, float(beta))
    assert (config["data"]["target"], config["seed"], config["epochs"]) == ("mnist_m", 0, 4)
    found = record.last.validation
    assert found is not None
    for shown, counts in ((theta, found.theta), (dagger, found.theta_dagger)):
        if counts is None:
            assert shown == ""
            continue
        right = sum(each.correct for each in counts.values())
        share = 100 * right / sum(each.total for each in counts.values())
        assert float(shown) == pytest.approx(share, abs=0.05 + 1e-9)


@pytest.mark.parametrize(
    ("folder", "words"),
    list(product(("digits", "star", "pacs"), (("--compare", "erm"), ("--on", "validation")))),
)
def test_tables_are_what_the_command_makes_of_the_records(
    folder: str, words: tuple[str, str]
) -> None:
    printed = run_cli("table", RESULTS / folder, "--format", "markdown", *words)
    rows = [line for line in printed.out.splitlines() if line.startswith("| ERM")]
    assert len(rows) >= 2
    assert [row for row in rows if row not in PAGE.splitlines()] == []


def test_longer_runs_are_what_the_command_makes_of_the_records() -> None:
    rows = []
    compared = ("--compare", "ERM (epochs=16, evaluates_every=16)")
    for words, label in (
        (compared, "| ERM"),
        (("--on", "validation"), "| source validation of ERM"),
    ):
        folders = (RESULTS / "digits", RESULTS / "longer")
        printed = run_cli("table", *folders, "--format", "markdown", *words).out
        found = (line for line in printed.splitlines() if line.startswith("| ERM"))
        rows += [line.replace("| ERM", label, 1) for line in found if "epochs=16" in line]
    assert len(rows) == 8
    assert [row for row in rows if row not in PAGE.splitlines()] == []


@pytest.mark.parametrize(
    ("folder", "option", "to", "count"),
    [
        ("order1", "method.order=1", "erm", 2),
        ("m256", "inner.size=256", "erm", 2),
        ("m256", "inner.size=256", "maml", 2),
    ],
)
def test_runs_with_another_option_are_what_the_command_makes_of_the_records(
    folder: str, option: str, to: str, count: int
) -> None:
    folders = (RESULTS / "digits", RESULTS / folder)
    printed = run_cli("table", *folders, "--format", "markdown", "--compare", to).out
    is_row = re.compile(rf"\| ERM\+CICF \([^)]*{re.escape(option)}")
    rows = [line for line in printed.splitlines() if is_row.match(line)]
    assert len(rows) == count
    assert [row for row in rows if row not in PAGE.splitlines()] == []


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (("--on", "validation"), "source validation of ", ""),
        (("--parameters", "theta"), "", " at θ"),
    ],
)
def test_runs_with_the_papers_m_are_shown_on_source_validation_and_at_theta(
    words: tuple[str, str], before: str, after: str
) -> None:
    folders = (RESULTS / "digits", RESULTS / "m256")
    printed = run_cli("table", *folders, "--format", "markdown", *words).out
    (row,) = (line for line in printed.splitlines() if "inner.size=256" in line and line[0] == "|")
    label, cells = row.removeprefix("| ").split(" | ", 1)
    shown = [line.replace("**", "") for line in PAGE.splitlines()]
    assert f"| {before}{label}{after} | {cells}".replace("**", "") in shown


CONFOUNDED = {"longer": "0.9, 60 epochs", "lr0.5": "0.9, β and α 0.5"}
"""Rows that are not called by their folder, which is the strength."""


@pytest.mark.parametrize("folder", sorted(path.name for path in RESULTS.glob("confounded/*")))
def test_runs_with_a_known_confounder_have_their_row(folder: str) -> None:
    deployed, theta, dagger = (
        _cells_by_row(f"confounded/{folder}", *words)
        for words in (
            ("--compare", "erm"),
            ("--parameters", "theta"),
            ("--parameters", "theta_dagger"),
        )
    )
    shown = [deployed["ERM"]]
    for method in ("ERM+MAML", "ERM+CICF"):
        shown += theta.get(method, ""), dagger.get(method, "")
    shown.append(deployed["ERM+CICF vs ERM"])
    label = CONFOUNDED.get(folder, folder)
    assert f"| {label} | {' | '.join(shown)} |" in PAGE.splitlines()


def _cells_by_row(folder: str, *words: str) -> dict[str, str]:
    """Return the first cell of each row, without what marks the best."""
    printed = run_cli("table", RESULTS / folder, "--format", "markdown", *words).out
    rows = (line.strip("| ").split(" | ") for line in printed.splitlines())
    return {row[0]: row[1].replace("*", "") for row in rows if row[0].startswith("ERM")}


ALL = ("mnist", "mnist_m", "svhn", "syn")
HARD = ("svhn", "syn")
ROWS = [
    ("CICF, β 0.5, weight decay 2e-3", "digits/*-cicf-0-*", ALL),
    ("[CICF, β 0.5, weight decay 5e-4](ways/wd5e-4)", "ways/wd5e-4/*-cicf-0-*", ALL),
    ("ERM, β 0.5, weight decay 2e-3", "digits/*-erm-0-*", ALL),
    ("[ERM, β 0.4, weight decay 5e-4](ways/erm-lr0.4)", "ways/erm-lr0.4/*-erm-0-*", ALL),
    ("MAML, β 0.5, weight decay 2e-3", "digits/*-maml-0-*", ALL),
    ("[MAML, β 0.5, weight decay 5e-4](ways/maml-wd5e-4)", "ways/maml-wd5e-4/*-maml-0-*", ALL),
    ("ERM, 16 epochs", "longer/*-s*-erm-0-*", HARD),
    ("[ERM, 43 epochs](longest)", "longest/*-erm-0-*", HARD),
    ("CICF, M = 256, nine epochs", "m256/*-s*-cicf-0-*", HARD),
    ("CICF, M = 64, 16 epochs", "longer/*-s*-cicf-0-*", HARD),
]


@pytest.mark.parametrize(("label", "pattern", "targets"), ROWS)
def test_a_row_of_runs_with_seed_0_is_their_records(
    label: str, pattern: str, targets: tuple[str, ...]
) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith(f"| {label} |")]
    (shown,) = (cells for row in rows if len(cells := _cells(row)) == len(targets) + 1)
    found = {}
    for path in RESULTS.glob(f"{pattern}/result.json"):
        record = Record.model_validate_json(path.read_text())
        found[record.config["data"]["target"]] = (record.accuracy("validation"), record.accuracy())
    cells = [found[target] for target in targets]
    cells.append((fmean(each[0] for each in cells), fmean(each[1] for each in cells)))
    assert shown == [[f"{value:.1f}" for value in cell] for cell in cells]


ABLATED = "ERM+CICF"
ABLATED_ELSEWHERE = ("digits/*-s*-cicf", "digits/*-s*-erm", "order1/*-s*-cicf")
"""Runs of other tables that are rows of the ablations, too; -s is SVHN or SYN."""


def test_every_ablation_has_its_row_and_every_row_its_records() -> None:
    shown = re.findall(
        r"^\| `?(CICF as above|ERM|\w+\.[^|`]+)`? \| (\d)" + 5 * r" \| ([^|]*)" + r" \|$",
        PAGE,
        flags=re.MULTILINE,
    )
    assert shown == _ablations()


def test_a_shallow_cut_is_as_much_better_as_the_page_says() -> None:
    by_target = []
    for target in ("svhn", "syn"):
        accuracy = {
            (record.setup.cut, record.config["seed"]): record.accuracy()
            for folder in ("ablations", "digits")
            for record in _records(f"{folder}/*-{target}-cicf-*")
            if _is_cut_alone(record)
        }
        shallow, deep = (
            [fmean(accuracy[cut, seed] for cut in cuts) for seed in (0, 1)]
            for cuts in (("input", "Z_0"), ("Z_1", "Z_2", "Z_3"))
        )
        by_target.append([one - other for one, other in zip(shallow, deep, strict=True)])
    assert PAGE.replace("\n  ", " ").count(_gain(average_interval(by_target))) == 2


def _is_cut_alone(record: Record) -> bool:
    """Tell whether a run differs from the CICF of the main table in its cut at the most."""
    (usual,) = _records("digits/*-svhn-cicf-0-*")
    parts = ("method", "inner", "clusters", "optim")
    return all(record.config[part] == usual.config[part] for part in parts)


def _ablations() -> list[tuple[str, ...]]:
    """Return the cells of each change to CICF: seeds, targets, at θ, difference, validation."""
    patterns = ("ablations/*-cicf-*", *(f"{name}-*" for name in ABLATED_ELSEWHERE))
    folders = [folder for pattern in patterns for folder in sorted(RESULTS.glob(pattern))]
    runs = read_runs(folders).found
    (table,) = compared(make_tables(runs).tables, ABLATED)
    (held,) = make_tables(runs, on="validation").tables
    (at_theta,) = make_tables(runs, parameters="theta").tables
    assert table.comparison is not None
    gains = {row.label: row.average for row in table.comparison.rows}
    validation, theta = (
        {row.label: row.average.mean for row in each.rows if row.average}
        for each in (held, at_theta)
    )
    rows = []
    for row in table.rows:
        means = [f"{row.cells[target].mean:.1f}" for target in ("svhn", "syn")]
        name = row.label.removeprefix(f"{ABLATED} (").rstrip(")").replace(ABLATED, "CICF as above")
        at, held_out = (f"{each[row.label]:.1f}" for each in (theta, validation))
        cells = (*means, at, _gain(gains.get(row.label)), held_out)
        rows.append((name, str(row.cells["svhn"].n), *cells))
    return rows


def _gain(gain: Interval | None) -> str:
    if gain is None:
        return ""
    if gain.low is None or gain.high is None:
        return f"{gain.mean:+.1f}"
    return f"{gain.mean:+.1f} [{gain.low:+.1f}, {gain.high:+.1f}]"


def _records(pattern: str) -> list[Record]:
    paths = sorted(RESULTS.glob(f"{pattern}/result.json"))
    return [Record.model_validate_json(path.read_text()) for path in paths]


def _place(record: Record) -> tuple[str, int]:
    config: Mapping[str, Any] = record.config
    return config["data"]["target"], config["seed"]


def _cells(row: str) -> list[list[str]]:
    """Return the pairs of source validation and target in a row; not all rows have such."""
    return [cell.replace("*", "").split(" / ") for cell in row.strip("| ").split(" | ")[1:]]


README = (RESULTS.parents[1] / "README.md").read_text()
FRONT = re.findall(
    r"^\| (ERM|MAML|CICF)([^|]*) \| (\d+)" + 5 * r" \| ([\d.]+)" + r" \|$", README, re.MULTILINE
)


@pytest.mark.parametrize(
    ("method", "how", "epochs", "shown"), [(*row[:3], row[3:]) for row in FRONT]
)
def test_the_front_page_shows_the_means_of_three_seeds(
    method: str, how: str, epochs: str, shown: tuple[str, ...]
) -> None:
    folder = "m256" if "M = 256" in how else {"9": "digits", "16": "longer"}[epochs]
    found: dict[str, list[float]] = {}
    for record in _records(f"{folder}/*-{method.lower()}-*"):
        found.setdefault(_place(record)[0], []).append(record.accuracy())
    assert [len(found[target]) for target in ALL] == [3] * 4
    means = [fmean(found[target]) for target in ALL]
    assert shown == tuple(f"{value:.1f}" for value in (*means, fmean(means)))


def test_the_front_page_has_rows_of_all_methods() -> None:
    assert len(FRONT) == 6


TOOK = re.findall(
    r"^\| \[[^|]*\| [^|]* \| ([^|]*) \| (\d+) runs, ([\d.]+) h \|$", PAGE, re.MULTILINE
)


@pytest.mark.parametrize(("folders", "runs", "hours"), TOOK)
def test_runs_took_as_long_as_the_page_says(folders: str, runs: str, hours: str) -> None:
    places = re.findall(r"\]\(([^)]+)\)", folders)
    # Some runs are in two folders, because two tables have them.
    records = {each.run_id: each for place in places for each in _records(f"{place}/**")}
    assert len(records) == int(runs)
    seconds = sum(each.seconds[phase] for each in records.values() for phase in PHASES)
    assert hours == f"{seconds / 3600:.1f}"


def test_every_folder_of_records_is_on_the_front_page() -> None:
    named = {place for folders, *_ in TOOK for place in re.findall(r"\]\(([^)]+)\)", folders)}
    held = {path.relative_to(RESULTS).parts[0] for path in RESULTS.glob("**/result.json")}
    assert named == held
