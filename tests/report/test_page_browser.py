"""The page in a real browser: no errors, sorting, keys, small screens, paper."""

from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any, NamedTuple

import pytest
from tests.support.pages import ODD_CLASS, odd_runs, pacs_runs
from tests.support.runs import run_cli

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (360, 800, 1440)


class Opened(NamedTuple):
    """Holds a page in a browser, and what it complained about."""

    page: Any  # Playwright's, which may be absent
    complaints: list[str]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Give a browser, or skip with the reason."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    found = next(filter(None, map(which, NAMES)), None)
    if found is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as started:
        launched = started.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def file(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a page about trained runs with odd names, and about PACS with the paper's values."""
    del browser
    folder = tmp_path_factory.mktemp("page")
    runs = (odd_runs(folder), pacs_runs(folder / "pacs"))
    ended = run_cli("report", *runs, "-o", folder / "page.html", "--root", folder, "--fast")
    assert ended.code == 0, ended.err
    return folder / "page.html"


@pytest.fixture
def opened(browser: Any, file: Path) -> Iterator[Opened]:
    context = browser.new_context(
        viewport={"width": 1000, "height": 800}, color_scheme="light", reduced_motion="reduce"
    )
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog {dialog.message}"))
    page.on("request", lambda each: complaints.append(each.url) if _is_foreign(each.url) else None)
    page.goto(file.as_uri())
    yield Opened(page, complaints)
    context.close()


def _is_foreign(url: str) -> bool:
    return not url.startswith(("file:", "data:"))


def test_nothing_is_complained_about_and_nothing_fetched(opened: Opened) -> None:
    opened.page.wait_for_selector(".curves path.curve")
    opened.page.wait_for_selector(".clouds svg .point")
    assert opened.complaints == []


def test_names_stay_text(opened: Opened) -> None:
    page = opened.page
    assert page.locator(".what b").first.inner_text() in (ODD_CLASS, "two")
    assert page.locator(".legend button", has_text=ODD_CLASS).count() == 1
    # The page's own script, and data that is none.
    assert page.locator("script:not([type])").count() == 1
    assert opened.complaints == []


def column(table: Any, place: int) -> list[str]:
    found = table.locator(f"tbody tr.ours > *:nth-child({place})")
    return [text.strip() for text in found.all_inner_texts()]


def test_numbers_sort_as_numbers_by_keyboard(opened: Opened) -> None:
    page = opened.page
    table = page.locator("#s1-runs table").first
    table.get_by_role("button", name="target %").focus()
    page.keyboard.press("Enter")
    found = [float(text) for text in column(table, 4)]
    assert found == sorted(found, reverse=True)
    assert len(set(found)) > 8
    page.keyboard.press("Space")
    found = [float(text) for text in column(table, 4)]
    assert found == sorted(found)
    assert table.locator("th[aria-sort=ascending]").inner_text().startswith("target %")
    assert table.locator("thead th[aria-sort=none]").count() == 6
    assert "sorted by target %, ascending" in page.locator("#said").inner_text()


def test_the_papers_lines_stay_below_ours(opened: Opened) -> None:
    page = opened.page
    table = page.locator("#s1-accuracy table")
    table.get_by_role("button", name="method").click()
    table.get_by_role("button", name="method").click()
    labels = table.locator("tbody th").all_inner_texts()
    assert labels == ["ERM+CICF", "paper", "difference", "ERM", "paper", "difference"]


def test_the_theme_follows_the_system_and_the_button(browser: Any, file: Path) -> None:
    context = browser.new_context(color_scheme="dark")
    page = context.new_page()
    page.goto(file.as_uri())
    ground = "getComputedStyle(document.body).backgroundColor"
    assert page.evaluate(ground) == "rgb(20, 23, 26)"
    button = page.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "true"
    button.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(ground) == "rgb(252, 252, 250)"
    assert button.get_attribute("aria-pressed") == "false"
    context.close()


def test_a_legend_hides_and_shows_curves_by_keyboard(opened: Opened) -> None:
    page = opened.page
    button = page.locator(".curves").get_by_role("button", name="ERM", exact=True)
    before = page.locator(".curves .curve[d]").count()
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-pressed") == "false"
    assert page.locator(".curves .curve[d]").count() == before - 2
    page.keyboard.press("Enter")
    assert page.locator(".curves .curve[d]").count() == before


def test_curves_are_read_by_cursor_and_by_arrow_keys(opened: Opened) -> None:
    page = opened.page
    stage = page.locator(".curves .stage").first
    stage.hover()
    assert "epoch" in page.locator("#tip").inner_text()
    stage.focus()
    page.keyboard.press("Home")
    assert page.locator("#tip b").inner_text() == "epoch 1"
    page.keyboard.press("ArrowRight")
    assert page.locator("#tip b").inner_text() == "epoch 2"
    assert page.locator("#said").inner_text().startswith("epoch 2: ")
    page.keyboard.press("Escape")
    assert not page.locator("#tip").is_visible()
    assert "from" in (stage.get_attribute("aria-label") or "")


def test_the_cursor_is_at_the_same_place_of_all_maps(opened: Opened) -> None:
    page = opened.page
    look = page.locator(".look").first
    frame = look.locator(".frame").nth(1)
    box = frame.bounding_box()
    frame.hover(position={"x": box["width"] / 4, "y": box["height"] / 2})
    places = look.locator(".v").evaluate_all("all => all.map(each => parseFloat(each.style.left))")
    assert len(places) == 3
    assert all(abs(place - 25) < 3 for place in places)
    assert all(text.startswith("here ") for text in look.locator("output").all_inner_texts())
    frame.focus()
    page.keyboard.press("ArrowRight")
    moved = look.locator(".v").evaluate_all("all => all.map(each => parseFloat(each.style.left))")
    assert len(set(moved)) == 1
    assert moved[0] > places[0]


def test_a_map_tells_its_value_under_the_cursor(opened: Opened) -> None:
    page = opened.page
    frame = page.locator(".look .frame[data-map]").first
    side = int(frame.get_attribute("data-side"))
    values = frame.evaluate("each => [...atob(each.dataset.map)].map(c => c.charCodeAt(0))")
    box = frame.bounding_box()
    row, place = side // 3, side // 2
    across, down = ((each + 0.5) / side for each in (place, row))
    frame.hover(position={"x": box["width"] * across, "y": box["height"] * down})
    told = page.locator(".look output").first.inner_text()
    assert told == f"here {values[row * side + place] / 255:.2f}"


def test_a_point_is_marked_in_all_planes_and_tells_what_it_is(opened: Opened) -> None:
    page = opened.page
    page.locator(".clouds .stage").first.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".clouds .point.on").count() == 2
    told = page.locator("#tip").inner_text()
    for word in ("class", "domain", "run", "ERM"):
        assert word in told


def test_colours_of_points_can_mean_domains(opened: Opened) -> None:
    page = opened.page
    before = page.locator(".clouds .point").evaluate_all("all => all.map(e => e.style.fill)")
    page.get_by_role("button", name="colour by domain").click()
    after = page.locator(".clouds .point").evaluate_all("all => all.map(e => e.style.fill)")
    assert (len(set(before)), len(set(after))) == (2, 3)
    page.locator(".clouds").get_by_role("button", name="<c>").click()
    dimmed = page.locator(".clouds .point.dim").count()
    assert dimmed == page.locator(".clouds rect.point").count() > 0


@pytest.mark.parametrize("width", WIDTHS)
def test_the_page_is_never_wider_than_the_screen(opened: Opened, width: int) -> None:
    page = opened.page
    page.set_viewport_size({"width": width, "height": 740})
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_first_column_stays_while_a_wide_table_scrolls(opened: Opened) -> None:
    page = opened.page
    page.set_viewport_size({"width": 360, "height": 740})
    box = page.locator("#s1-accuracy .wide")
    assert box.evaluate("each => each.scrollWidth > each.clientWidth")
    head = box.locator("tbody th").first
    before = head.bounding_box()["x"]
    box.evaluate("each => { each.scrollLeft = 200; }")
    assert head.bounding_box()["x"] == pytest.approx(before, abs=1)


def test_on_paper_everything_is_open_and_nothing_can_be_pressed(opened: Opened) -> None:
    page = opened.page
    page.get_by_role("button", name="Dark").click()
    page.emulate_media(media="print")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == "rgb(255, 255, 255)"
    assert not page.locator(".controls").is_visible()
    hidden = page.locator("details > *:not(summary)").evaluate_all(
        "all => all.filter(each => !each.checkVisibility() || !each.offsetHeight).length"
    )
    assert hidden == 0
    assert page.pdf()[:5] == b"%PDF-"


def test_the_focus_can_be_seen(opened: Opened) -> None:
    page = opened.page
    for _ in range(3):
        page.keyboard.press("Tab")
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"


def test_without_scripts_numbers_and_pictures_are_there(browser: Any, file: Path) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert not page.locator(".controls").is_visible()
    assert page.locator(".look img").first.is_visible()
    assert "Charts are drawn by a script" in page.content()
    page.locator("summary", has_text="The same as numbers").first.click()
    assert page.locator("#s0-curves table").first.is_visible()
    context.close()
