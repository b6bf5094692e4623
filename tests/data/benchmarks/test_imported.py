"""Folders that `cicf data import` has written: read through their manifest, with its hashes."""

import json
from pathlib import Path

import pytest
from tests.support.benchmarks import (
    PACS,
    PACS_CLASSES,
    domain_class_image,
    fill,
    tiny,
)

from cicf import DataError
from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.layouts import load_benchmark, read_benchmark
from cicf.data.domains import PARTS
from cicf.data.hashes import sha256_of
from cicf.data.manifest import ManifestRow, write_manifest


def pacs(root: Path) -> Path:
    return domain_class_image(root, PACS, PACS_CLASSES)


def imported(root: Path, name: str = "pacs") -> Path:
    """Write a folder as the importer leaves it."""
    pacs(root)
    rows = [
        ManifestRow(f"{d}/{c}/00001.jpg", c, d, "train", sha256_of(root / d / c / "00001.jpg"))
        for d in PACS
        for c in PACS_CLASSES
    ]
    write_manifest(root, rows)
    (root / "dataset.json").write_text(json.dumps({"name": name, "title": "PACS"}))
    return root


def test_imported_folder_is_read_through_its_manifest(tmp_path: Path) -> None:
    imported(tmp_path)
    fill(tmp_path / "photo" / "dog", ["added.jpg"])
    data, notes = load_benchmark(benchmark("pacs"), tmp_path)
    assert len(data) == 28
    assert set(data.part.tolist()) == {PARTS.index("train")}
    assert notes[0] == "1 images are not in manifest.csv and not used"


def test_imported_image_that_changed_is_refused(tmp_path: Path) -> None:
    path = imported(tmp_path) / "photo" / "dog" / "00001.jpg"
    path.write_bytes(tiny(grey=9))
    with pytest.raises(DataError, match=f"{path} has changed since it was imported"):
        load_benchmark(benchmark("pacs"), tmp_path, unreadable="left out")


def test_imported_image_that_is_gone_is_refused(tmp_path: Path) -> None:
    path = imported(tmp_path) / "photo" / "dog" / "00001.jpg"
    path.unlink()
    with pytest.raises(DataError, match=f"1 of the 28 images in .* the first is {path}"):
        load_benchmark(benchmark("pacs"), tmp_path)
    assert (
        "1 images of manifest.csv do not exist"
        in (read_benchmark(benchmark("pacs"), tmp_path).problems[0])
    )


def test_folder_imported_under_another_name_is_refused(tmp_path: Path) -> None:
    imported(tmp_path, name="digits-dg-rebuilt")
    for load in (read_benchmark, load_benchmark):
        with pytest.raises(DataError, match=r"holds 'digits-dg-rebuilt', .* not 'digits-dg'"):
            load(benchmark("digits-dg"), tmp_path)


def test_rows_of_no_class_are_a_problem(tmp_path: Path) -> None:
    imported(tmp_path)
    path = tmp_path / "manifest.csv"
    path.write_text(path.read_text().replace("00001.jpg,dog,photo", "00001.jpg,cat,photo"))
    (problem,) = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert problem.startswith("1 rows of manifest.csv name no domain and class of PACS")


def test_manifest_of_somebody_else_is_ignored(tmp_path: Path) -> None:
    pacs(tmp_path)
    (tmp_path / "manifest.csv").write_text("name,md5\na.jpg,0\n")
    assert len(read_benchmark(benchmark("pacs"), tmp_path).entries) == 28


def test_imported_folder_is_not_read_from_above_it(tmp_path: Path) -> None:
    imported(tmp_path / "inside")
    with pytest.raises(DataError, match=f"imported into {tmp_path / 'inside'}; name that folder"):
        read_benchmark(benchmark("pacs"), tmp_path)
