"""Figures are stored as vector and pixels with their data, the same bytes each time."""

from pathlib import Path

import pytest
from PIL import Image

from cicf.core import ConfigError
from cicf.report.figures import COLOURS, LINES, MARKERS, save_figure, styled


def save(output: Path) -> tuple[Path, ...]:
    with styled(3.0, 2.0) as figure:
        figure.subplots().plot([1, 2], [3, 4], label="θ† of $ 5 and <b>")
        return save_figure(
            figure, output, head=("x", "y"), rows=[(1, 3), (2, 'a "b", c')], command="cicf figure x"
        )


def test_a_figure_is_three_pictures_and_its_data(tmp_path: Path) -> None:
    files = save(tmp_path / "deep" / "cost.v2")
    assert [file.name for file in files] == [
        "cost.v2.pdf",
        "cost.v2.svg",
        "cost.v2.png",
        "cost.v2.csv",
    ]
    assert files[0].read_bytes().startswith(b"%PDF")
    assert "cicf figure x" in files[1].read_text()
    with Image.open(files[2]) as picture:
        assert picture.info["Description"] == "cicf figure x"
    assert files[3].read_text() == 'x,y\n1,3\n2,"a ""b"", c"\n'


def test_the_ending_is_taken_off(tmp_path: Path) -> None:
    assert save(tmp_path / "cost.png")[0] == tmp_path / "cost.pdf"


def test_the_same_figure_is_the_same_files(tmp_path: Path) -> None:
    first, second = save(tmp_path / "a"), save(tmp_path / "b")
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_a_run_folder_and_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").touch()
    with pytest.raises(ConfigError, match="folder of a run"):
        save(tmp_path / "run" / "figure")
    with pytest.raises(ConfigError, match="is a folder"):
        save(tmp_path)


def test_series_differ_in_colour_marker_and_line() -> None:
    assert len(set(COLOURS)) == len(set(MARKERS)) == len(set(LINES)) == 8
