"""Links between the pages lead to a file that is there, and to a heading that it has."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path) -> None:
    links = LINK.findall(_without_code(page))
    local = [(file, anchor) for file, anchor in links if ":" not in file]
    assert [link for link in local if not _is_there(page, *link)] == []


def test_a_heading_is_found_by_its_words() -> None:
    assert _anchor("### Which parameters are the model: θ or θ†?") == (
        "which-parameters-are-the-model-θ-or-θ"
    )


def _is_there(page: Path, file: str, anchor: str) -> bool:
    place = page.parent / file if file else page
    if not place.exists():
        return False
    headings = re.findall(r"^#+ .*$", _without_code(place), re.MULTILINE) if anchor else []
    return not anchor or anchor in map(_anchor, headings)


def _anchor(heading: str) -> str:
    """Return the name that a web page of repositories gives to a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.lstrip("#").strip().lower())
    return words.replace(" ", "-")


def _without_code(page: Path) -> str:
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
