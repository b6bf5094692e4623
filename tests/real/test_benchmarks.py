"""The real PACS and the stand-in for Digits-DG, from their archives to data ready to train on."""

import os
import zipfile
from pathlib import Path

import pytest

from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.layouts import load_benchmark
from cicf.data.benchmarks.verify import Verification, verify
from cicf.data.domains import PARTS

pytestmark = [pytest.mark.real, pytest.mark.slow]


def unpacked(name: str, into: Path) -> Path:
    archive = Path(os.environ.get("CICF_DATA", "")) / name
    if not archive.is_file():
        pytest.skip(f"CICF_DATA names no folder with {name}")
    with zipfile.ZipFile(archive) as files:
        files.extractall(into)
    return into


@pytest.fixture(scope="module")
def pacs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with all images of PACS and the lists of its authors."""
    return unpacked("pacs_128.zip", tmp_path_factory.mktemp("pacs"))


@pytest.fixture(scope="module")
def verified_pacs(pacs: Path) -> Verification:
    """Return what is found of PACS."""
    return verify(benchmark("pacs"), pacs)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the stand-in for Digits-DG."""
    return unpacked("digits_dg_rebuilt.zip", tmp_path_factory.mktemp("digits"))


def test_pacs_is_complete(verified_pacs: Verification) -> None:
    assert verified_pacs.problems == ()
    assert sum(row.found for row in verified_pacs.rows) == 9991


def test_lists_of_pacs_are_the_official_split(verified_pacs: Verification) -> None:
    assert [row.found for row in verified_pacs.parts] == [
        *(1840, 208),
        *(2107, 237),
        *(1499, 171),
        *(3531, 398),
    ]


def test_lists_of_pacs_count_from_1(verified_pacs: Verification) -> None:
    assert "labels in the list files count from 1" in verified_pacs.notes


def test_sketches_are_jpeg_under_the_name_of_png(verified_pacs: Verification) -> None:
    lying = [note for note in verified_pacs.notes if "an ending that is not" in note]
    assert [note.split()[0] for note in lying] == ["3929"]


def test_pacs_is_ready_to_train_on(pacs: Path) -> None:
    data, notes = load_benchmark(benchmark("pacs"), pacs)
    assert notes == ("labels in the list files count from 1",)
    assert data.without("sketch").y.bincount().tolist() == [957, 914, 813, 505, 724, 863, 1286]
    held = data.of("photo").part == PARTS.index("validation")
    assert data.of("photo").y[held].bincount().tolist() == [19, 21, 19, 19, 20, 29, 44]


def test_rebuilt_digits_are_complete_and_split(digits: Path) -> None:
    found = verify(benchmark("digits-dg-rebuilt"), digits)
    assert (found.problems, found.notes) == ((), ())
    assert sum(row.found for row in found.rows) == 24000
    assert [row.found for row in found.parts] == [4800, 1200] * 4
