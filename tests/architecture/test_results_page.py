"""What the page of results says is what its records hold."""

import re
from pathlib import Path
from statistics import fmean

import pytest
from tests.support.runs import run_cli

from cicf.results import Record

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAGE = (RESULTS / "README.md").read_text()
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


@pytest.mark.parametrize("words", [("--compare", "erm"), ("--on", "validation")])
def test_tables_are_what_the_command_makes_of_the_records(words: tuple[str, str]) -> None:
    printed = run_cli("table", RESULTS / "digits", "--format", "markdown", *words)
    rows = [line for line in printed.out.splitlines() if line.startswith("| ERM")]
    assert len(rows) >= 2
    assert [row for row in rows if row not in PAGE.splitlines()] == []


ALL, TWO = ("mnist", "mnist_m", "svhn", "syn"), ("svhn", "syn")
ROWS = [
    ("CICF, β 0.5, weight decay 2e-3", "digits/*-cicf-0-*", ALL),
    ("[CICF, β 0.5, weight decay 5e-4](ways/wd5e-4)", "ways/wd5e-4/*-cicf-0-*", ALL),
    ("ERM, β 0.5, weight decay 2e-3", "digits/*-erm-0-*", ALL),
    ("[ERM, β 0.4, weight decay 5e-4](ways/erm-lr0.4)", "ways/erm-lr0.4/*-erm-0-*", ALL),
    ("ERM", "digits/*-erm-0-*", TWO),
    ("CICF as it is above", "digits/*-cicf-0-*", TWO),
    *(
        (label, f"{folder}/*-cicf-0-*", TWO)
        for label, folder in re.findall(r"^\| (\[[^\]]+\]\((ways/[^)]+)\)) \|", PAGE, re.MULTILINE)
        if folder not in ("ways/wd5e-4", "ways/erm-lr0.4")
    ),
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


def test_every_way_that_was_tried_has_its_row() -> None:
    tried = {path.parts[-3] for path in RESULTS.glob("ways/*/*/result.json")}
    assert {Path(pattern).parts[1] for _, pattern, _ in ROWS if pattern.startswith("ways")} == tried


def _cells(row: str) -> list[list[str]]:
    """Return the pairs of source validation and target in a row; not all rows have such."""
    return [cell.replace("*", "").split(" / ") for cell in row.strip("| ").split(" | ")[1:]]


def test_links_of_the_page_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)", PAGE)
    assert len(links) > 30
    assert [link for link in links if not (RESULTS / link).exists()] == []
