"""The list of methods in the documentation is the list of methods that there are."""

import re
from pathlib import Path

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


RECORDS = [
    Record.model_validate_json(path.read_text()) for path in PAGES.glob("demo/*/result.json")
]
BEHIND = {"ccsa", "jigen", "matchdg"}
"""Methods that the page names as those that learn slower than ERM here."""


def learned(record: Record) -> tuple[float, float]:
    """Return source validation and target accuracy of the stored network, in percent."""
    return record.accuracy("validation"), record.accuracy()


def test_every_method_learned_the_embedded_digits() -> None:
    by_method = {record.config["method"]["name"]: learned(record) for record in RECORDS}
    assert by_method.keys() == set(METHODS)
    least, _ = by_method["erm"]
    assert {name for name, (each, _) in by_method.items() if each < least - 3} == BEHIND
    # Chance is 10 %, with a deviation of 1.2 for the 599 images of the target.
    assert all(target > 15 for _, target in by_method.values())


def test_the_page_shows_what_they_learned() -> None:
    text = (PAGES / "README.md").read_text()
    for record in RECORDS:
        name, (validation, target) = record.config["method"]["name"], learned(record)
        assert f"| {name} | {validation:.1f} | {target:.1f} |" in text
