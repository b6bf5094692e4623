"""`cicf report`, from the folders of runs to the page."""

import json
from pathlib import Path

import pytest
from tests.support.pages import ODD_CLASS, ODD_FOLDER, odd_runs, pacs_runs, read_page
from tests.support.runs import run_cli


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return odd_runs(tmp_path_factory.mktemp("trained"))


@pytest.fixture(scope="module")
def pacs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pacs_runs(tmp_path_factory.mktemp("pacs"))


def test_writes_a_page_with_everything_and_tells_its_size(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "page.html"
    ended = run_cli(
        "report", trained, "-o", file, "--fast", "--title", "A & B", "--root", trained.parent
    )
    assert ended.code == 0, ended.err
    assert ended.out.startswith(f"wrote {file}, {file.stat().st_size / 1000:,.0f} kB")
    assert "again: cicf report" in ended.out
    assert "networks that were tested on <c>" in ended.err
    found = read_page(file.read_text())
    assert found.inside("h1") == ["A & B"]
    assert ODD_CLASS in found.text
    assert f"{ODD_FOLDER}-erm" in found.text
    assert found.all("img")
    assert [each for each in found.all("div") if each.get("class") == "clouds"]
    assert [each for each in found.all("div") if each.get("class") == "curves"]
    assert list(file.parent.iterdir()) == [file]


def test_without_networks_their_place_says_why(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ended = run_cli("report", trained, "-o", file, "--no-networks")
    assert (ended.code, ended.err) == (0, "")
    found = read_page(file.read_text())
    assert "networks are left out, by --no-networks" in found.text
    assert not found.all("img")


def test_as_many_images_as_are_asked_for(trained: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    run_cli("report", trained, "-o", file, "--images", 3, "--root", trained.parent)
    boxes = [each.get("class") or "" for each in read_page(file.read_text()).all("div")]
    assert sum("look" in each.split() for each in boxes) == 3


def test_prints_json(pacs: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ended = run_cli("report", pacs, "-o", file, "--json", "--no-networks")
    found = json.loads(ended.out)
    assert found["file"] == str(file)
    assert found["bytes"] == file.stat().st_size
    assert found["runs"] == 16
    assert found["tables"] == ["pacs, resnet18: accuracy in %"]


def test_runs_whose_images_are_not_at_hand_are_shown_without_networks(
    pacs: Path, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    ended = run_cli("report", pacs, "-o", file)
    assert ended.code == 0
    assert "missing: no networks are shown: " in ended.err
    assert "no networks are shown: " in read_page(file.read_text()).text


def test_runs_that_are_not_shown_are_named_on_the_page_too(pacs: Path, tmp_path: Path) -> None:
    begun, file = tmp_path / "begun", tmp_path / "page.html"
    begun.mkdir()
    (begun / "config.json").write_text("{}")
    ended = run_cli("report", pacs, begun, "-o", file, "--no-networks")
    assert ended.err.startswith(f"not shown: {begun} has no result.json")
    assert "begun has no result.json" in read_page(file.read_text()).text


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("page.txt", "must end in .html"),
        ("folder.html", "is a folder"),
        ("run/page.html", "lies in the folder of a run"),
    ],
)
def test_an_output_that_cannot_be_is_refused_before_any_work(
    pacs: Path, tmp_path: Path, output: str, sentence: str
) -> None:
    (tmp_path / "folder.html").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    ended = run_cli("report", pacs, "-o", tmp_path / output, "--no-networks")
    assert (ended.code, ended.out) == (2, "")
    assert sentence in ended.err
    assert ended.err.count("\n") == 1
    assert not list(tmp_path.rglob("page.*"))


@pytest.mark.parametrize("words", [("--compare", "nobody"), ("--images", 0), ("nowhere",)])
def test_a_users_mistake_is_exit_code_2_and_no_page(
    pacs: Path, tmp_path: Path, words: tuple[object, ...]
) -> None:
    file = tmp_path / "page.html"
    ended = run_cli("report", pacs, "-o", file, *words)
    assert (ended.code, ended.out) == (2, "")
    assert not file.exists()
