"""`cicf data import` and `cicf data fetch`, from the words of a user to what is printed."""

import io
import json
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest
import typer
from PIL import Image
from tests.support.runs import folder_of_images
from typer.testing import CliRunner, Result

from cicf import DataError
from cicf.cli.data_import import fetch, import_

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def run(*words: object) -> Result:
    app = typer.Typer()
    app.command("import")(import_)
    app.command("fetch")(fetch)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with a small PACS."""
    return folder_of_images(tmp_path / "PACS", DOMAINS, CLASSES, 1)


def test_import_ends_with_what_there_is_and_how_to_check_it(source: Path, tmp_path: Path) -> None:
    ended = run("import", "PACS", source, tmp_path / "out")
    record = json.loads((tmp_path / "out" / "dataset.json").read_text())
    first, *notes, last = ended.stdout.splitlines()
    assert ended.exit_code == 0
    assert first == (
        "PACS: 28 images (art_painting 7, cartoon 7, photo 7, sketch 7), read from "
        f"domain/class/image; fingerprint {record['fingerprint']}"
    )
    assert notes == [f"note: {note}" for note in record["notes"]]
    assert last == f"check it with: cicf data verify pacs {tmp_path / 'out'}"


def test_progress_is_a_line_for_each_stage_where_there_is_no_terminal(
    source: Path, tmp_path: Path
) -> None:
    assert run("import", "pacs", source, tmp_path / "out").stderr == "importing: 28 files\n"


def test_broken_images_are_left_out_when_asked(source: Path, tmp_path: Path) -> None:
    (source / "photo" / "dog" / "bad.png").write_text("no image")
    with pytest.raises(DataError, match="pass --skip-unreadable"):
        run("import", "pacs", source, tmp_path / "out")
    ended = run("import", "pacs", source, tmp_path / "out", "--skip-unreadable")
    assert "note: left out 1 images, unreadable: photo/dog/bad.png\n" in ended.stdout


@pytest.mark.parametrize("words", [("import", "pcas", "a", "b"), ("fetch", "pcas", "b")])
def test_misspelt_benchmarks_are_guessed(words: tuple[str, ...]) -> None:
    with pytest.raises(DataError, match=r"'pcas' is no benchmark; did you mean 'pacs'\?"):
        run(*words)


def test_fetch_says_where_to_get_what_the_hub_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="VLCS has no complete copy on Hugging Face"):
        run("fetch", "vlcs", tmp_path / "out")


@pytest.mark.slow
def test_import_that_is_told_to_end_leaves_nothing(tmp_path: Path) -> None:
    source = tmp_path / "source.zip"
    content = io.BytesIO()
    Image.new("RGB", (2, 2)).save(content, "jpeg")
    with zipfile.ZipFile(source, "w") as archive:
        for index in range(30_000):
            archive.writestr(f"photo/dog/{index}.jpg", content.getvalue())
    script, dest = Path(sys.executable).with_name("cicf"), tmp_path / "here" / "pacs"
    process = subprocess.Popen(
        [script, "data", "import", "pacs", source, dest], stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob("here/.pacs*/*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate()
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert not (tmp_path / "here").exists()
