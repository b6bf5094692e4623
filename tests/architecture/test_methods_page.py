"""The list of methods in the documentation is the list of methods that there are."""

import re
from pathlib import Path

import pytest
from tests.support.runs import run_cli

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
