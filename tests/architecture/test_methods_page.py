"""The list of methods in the documentation is the list of methods that there are."""

import re
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import pytest
from tests.support.runs import run_cli

from cicf.methods import METHODS
from cicf.results import Record

PAGES = Path(__file__).parents[2] / "docs" / "methods"
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def rows_of(text: str) -> list[list[str]]:
    """Return the cells of the first table of a text, without links."""
    lines = [line.strip() for line in text.splitlines()]
    first = next(place for place, line in enumerate(lines) if line.startswith("|"))
    table = []
    for line in lines[first:]:
        if not line.startswith("|"):
            break
        table.append([LINK.sub(r"\1", cell).strip() for cell in line.strip("|").split(" | ")])
    return table


def test_the_page_lists_the_methods_as_the_command_does() -> None:
    found = rows_of((PAGES / "README.md").read_text())
    expected = rows_of(run_cli("methods", "--markdown").out)
    assert found == expected, "put what `cicf methods --markdown` prints into the page"


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_links_of_the_pages_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    local = [target for target in targets if "://" not in target]
    assert [target for target in local if not (page.parent / target).exists()] == []


def records(folder: str) -> list[Record]:
    """Return the records in a folder of the documentation."""
    files = sorted(PAGES.glob(f"{folder}/*/result.json"))
    return [Record.model_validate_json(path.read_text()) for path in files]


SHORT, LONG = records("demo"), records("demo60")
BEHIND = {"ccsa", "jigen", "matchdg"}
"""Methods that the page names as those that learn slower than ERM here."""


def learned(found: Sequence[Record]) -> tuple[float, float]:
    """Return mean source validation and target accuracy of the stored networks, in percent."""
    return fmean(each.accuracy("validation") for each in found), fmean(
        each.accuracy() for each in found
    )


def by_method(found: Sequence[Record]) -> dict[str, list[Record]]:
    """Return the records of each method."""
    grouped: dict[str, list[Record]] = {}
    for record in found:
        grouped.setdefault(record.config["method"]["name"], []).append(record)
    return grouped


def behind_erm(found: Sequence[Record]) -> set[str]:
    """Return the methods that are more than 3 points behind ERM on source validation."""
    shown = {name: learned(each)[0] for name, each in by_method(found).items()}
    return {name for name, each in shown.items() if each < shown["erm"] - 3}


def test_every_method_learned_the_embedded_digits() -> None:
    assert by_method(SHORT).keys() == set(METHODS)
    assert behind_erm(SHORT) == BEHIND
    # Chance is 10 %, with a deviation of 1.2 for the 599 images of the target.
    assert all(learned([record])[1] > 15 for record in (*SHORT, *LONG))


def test_those_that_were_behind_catch_up_in_a_longer_training() -> None:
    assert by_method(LONG).keys() == BEHIND | {"erm"}
    assert {record.config["epochs"] for record in LONG} == {60}
    assert behind_erm(LONG) == set()


@pytest.mark.parametrize("found", [SHORT, LONG], ids=["short", "long"])
def test_the_page_shows_what_they_learned(found: list[Record]) -> None:
    text = (PAGES / "README.md").read_text()
    for name, each in by_method(found).items():
        validation, target = learned(each)
        seeds = f" | {len(each)}" if found is LONG else ""
        assert f"| {name}{seeds} | {validation:.1f} | {target:.1f} |" in text
