"""Benchmarks in the layouts that others ship them in, and what may be wrong with a copy."""

import shutil
from collections import Counter
from pathlib import Path

import pytest
import torch
from tests.support.benchmarks import (
    PACS,
    PACS_CLASSES,
    VLCS,
    dassl_office_home,
    dassl_pacs,
    domain_class_image,
    domainbed_vlcs,
    fill,
    jigen_vlcs,
    names,
    office_home_counts,
    tiny,
)

from cicf import DataError
from cicf.data.benchmarks.entries import Found
from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.layouts import load_benchmark, read_benchmark
from cicf.data.domains import PARTS

SMALL_VLCS = dict.fromkeys(VLCS, (13, 13, 13, 13, 13))
SMALL_TEST = dict.fromkeys(VLCS, (3, 3, 3, 3, 3))
"""Of 13 images of a class, 9 to train, 1 to validate, 3 to test."""


def pacs(root: Path) -> Path:
    return domain_class_image(root, PACS, PACS_CLASSES)


def by_cell(found: Found) -> Counter[tuple[str, str]]:
    return Counter((entry.domain, entry.label) for entry in found.entries)


def by_part(found: Found) -> Counter[str | None]:
    return Counter(entry.part for entry in found.entries)


@pytest.mark.parametrize("below", ["", "PACS", "pacs/images", "a/b/c"])
def test_what_comes_before_the_domain_does_not_matter(tmp_path: Path, below: str) -> None:
    pacs(tmp_path / below)
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert set(by_cell(found).values()) == {1}
    assert len(found.entries) == 28
    assert found.layout == "domain/class/image"
    assert found.problems == ()


def test_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "photo" / "dog", ["00001.jpg"], tiny(grey=200))
    found = read_benchmark(benchmark("pacs"), tmp_path)
    images = {(e.domain, e.label): e.image.read() for e in found.entries}
    assert images["photo", "dog"] == tiny(grey=200)
    assert images["photo", "horse"] == tiny()


@pytest.mark.slow
def test_office_home_of_dassl_is_loaded_with_its_split(tmp_path: Path) -> None:
    data, notes = load_benchmark(benchmark("office-home"), dassl_office_home(tmp_path))
    assert (len(data), notes) == (15588, ())
    assert data.domains == ("art", "clipart", "product", "real_world")
    assert data.classes == tuple(sorted(office_home_counts()["Art"]))
    assert data.domain.bincount().tolist() == [2427, 4365, 4439, 4357]
    art = data.of("art")
    assert art.y.bincount().tolist() == list(office_home_counts()["Art"].values())
    held = sum(max(1, count // 10) for count in office_home_counts()["Art"].values())
    assert int((art.part == PARTS.index("validation")).sum()) == held
    assert art.images.paths[0].parts[-4:-1] == ("art", "train", "alarm_clock")


@pytest.mark.slow
def test_vlcs_of_domainbed_is_loaded(tmp_path: Path) -> None:
    data, notes = load_benchmark(benchmark("vlcs"), domainbed_vlcs(tmp_path))
    assert (len(data), notes, data.part) == (10729, (), None)
    assert data.domain.bincount().tolist() == [1415, 2656, 3376, 3282]
    assert data.of("sun").y.bincount().tolist() == [20, 932, 1036, 30, 1264]


def test_full_is_what_there_is_where_train_is_not(tmp_path: Path) -> None:
    jigen_vlcs(tmp_path, SMALL_VLCS, SMALL_TEST)
    for folder in (tmp_path / "VLCS").iterdir():
        shutil.rmtree(folder / "train")
        shutil.rmtree(folder / "crossval")
    found = read_benchmark(benchmark("vlcs"), tmp_path)
    assert by_part(found) == {None: 200, "test": 60}
    assert found.notes == ()


def test_names_may_repeat_in_different_parts(tmp_path: Path) -> None:
    for part in ("train", "val"):
        for domain in ("mnist", "mnist_m", "svhn", "syn"):
            for digit in range(10):
                fill(tmp_path / domain / part / str(digit), ["0.jpg"])
    found = read_benchmark(benchmark("digits-dg"), tmp_path)
    assert by_part(found) == {"train": 40, "validation": 40}
    assert found.layout == "domain/part/class/image"


def test_hidden_folders_are_left_out_and_named(tmp_path: Path) -> None:
    pacs(tmp_path)
    pacs(tmp_path / "__MACOSX")
    fill(tmp_path / "photo" / ".ipynb_checkpoints", ["00001-checkpoint.jpg"])
    fill(tmp_path / "photo" / "dog", ["._00001.jpg"])
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert len(found.entries) == 28
    assert found.notes == ("hidden folders are left out: __MACOSX, photo/.ipynb_checkpoints",)


def test_class_folder_that_does_not_exist_officially_is_a_problem(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "photo" / "cat", names(3))
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert len(found.entries) == 28
    first = tmp_path / "photo" / "cat" / "00001.jpg"
    assert found.problems == (
        f"3 images lie in a domain, but in no class of PACS, the first is {first}; move them, or "
        "name a narrower folder",
    )


def test_other_images_are_counted_in_a_note(tmp_path: Path) -> None:
    pacs(tmp_path / "PACS")
    fill(tmp_path / "figures", names(2))
    found = read_benchmark(benchmark("pacs"), tmp_path)
    first = tmp_path / "figures" / "00001.jpg"
    assert found.notes == (f"2 images lie in no domain and are left out, the first is {first}",)


@pytest.mark.parametrize("second", ["copy/photo/dog", "photo/train/dog"])
def test_two_copies_below_one_folder_are_refused(tmp_path: Path, second: str) -> None:
    pacs(tmp_path / "PACS")
    fill(tmp_path / second, ["00001.jpg"])
    one, other = tmp_path / "PACS" / "photo" / "dog", tmp_path / second
    with pytest.raises(DataError, match="name the folder of one") as refused:
        read_benchmark(benchmark("pacs"), tmp_path)
    assert str(one / "00001.jpg") in str(refused.value)
    assert str(other / "00001.jpg") in str(refused.value)


def test_links_are_followed_and_two_to_one_file_are_one_image(tmp_path: Path) -> None:
    pacs(tmp_path / "there")
    (tmp_path / "here").mkdir()
    for domain in PACS:
        (tmp_path / "here" / domain).symlink_to(tmp_path / "there" / domain)
    (tmp_path / "here" / "art").symlink_to("art_painting")
    (tmp_path / "here" / "round").symlink_to(tmp_path / "here")
    assert len(read_benchmark(benchmark("pacs"), tmp_path / "here").entries) == 28


def test_unknown_layout_is_told_with_what_is_there(tmp_path: Path) -> None:
    fill(tmp_path / "dog" / "photo", names(2))
    (tmp_path / "photo_train.txt").write_text("dog/photo/00001.jpg 1\n")
    (tmp_path / "pacs.zip").write_bytes(b"PK")
    with pytest.raises(DataError) as refused:
        read_benchmark(benchmark("pacs"), tmp_path)
    assert str(refused.value) == (
        f"{tmp_path} holds no images of PACS but the folders dog, 2 images, the list files "
        "photo_train.txt, the archives pacs.zip, to be imported first; name a folder with "
        "domain/class/image or domain/train/class/image, where domain is one of art_painting, "
        "cartoon, photo, sketch, with list files or without, or with HDF5 or parquet files"
    )


def test_place_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder; name the one that holds PACS"):
        read_benchmark(benchmark("pacs"), tmp_path / "nowhere")


@pytest.mark.parametrize("load", [read_benchmark, load_benchmark])
def test_archive_is_to_be_imported_first(tmp_path: Path, load: object) -> None:
    archive = tmp_path / "PACS.zip"
    archive.write_bytes(b"PK")
    with pytest.raises(DataError, match=f"import it first: cicf data import pacs {archive} DEST"):
        load(benchmark("pacs"), archive)


@pytest.mark.parametrize("name", ["photo_train.hdf5", "data/train-0.parquet"])
def test_container_is_to_be_imported_before_training(tmp_path: Path, name: str) -> None:
    fill((tmp_path / name).parent, [Path(name).name])
    with pytest.raises(DataError, match=f"import it first: cicf data import pacs {tmp_path} DEST"):
        load_benchmark(benchmark("pacs"), tmp_path)


def test_loaded_images_come_by_domain_class_and_name(tmp_path: Path) -> None:
    data, _ = load_benchmark(benchmark("pacs"), domain_class_image(tmp_path, PACS, PACS_CLASSES, 2))
    assert data.classes == PACS_CLASSES
    assert data.domains == tuple(PACS)
    assert data.y.tolist() == [label for label in range(7) for _ in range(2)] * 4
    assert data.domain.tolist() == [domain for domain in range(4) for _ in range(14)]
    assert [path.name for path in data.images.paths[:2]] == ["00001.jpg", "00002.jpg"]


def test_loaded_images_carry_the_official_split(tmp_path: Path) -> None:
    data, notes = load_benchmark(benchmark("pacs"), dassl_pacs(tmp_path, train=2, crossval=1))
    train, validation = PARTS.index("train"), PARTS.index("validation")
    assert torch.equal(data.part, torch.tensor([train, train, validation]).repeat(28))
    assert notes[0] == "labels in the list files count from 1"


def test_counts_that_are_not_the_official_ones_are_one_note(tmp_path: Path) -> None:
    _, notes = load_benchmark(benchmark("pacs"), pacs(tmp_path))
    assert notes == (
        "counts differ from the official ones: art_painting has 7 of 2048 images (dog 1 of 379, "
        "elephant 1 of 255, giraffe 1 of 285, and 4 more classes); cartoon has 7 of 2344 images "
        "(dog 1 of 389, elephant 1 of 457, giraffe 1 of 346, and 4 more classes); photo has 7 of "
        "1670 images (dog 1 of 189, elephant 1 of 202, giraffe 1 of 182, and 4 more classes); "
        "sketch has 7 of 3929 images (dog 1 of 772, elephant 1 of 740, giraffe 1 of 753, and 4 "
        "more classes)",
    )


def test_missing_domain_is_refused(tmp_path: Path) -> None:
    shutil.rmtree(pacs(tmp_path) / "cartoon")
    with pytest.raises(DataError, match="has no images of domain 'cartoon' of PACS"):
        load_benchmark(benchmark("pacs"), tmp_path)


def test_domain_without_a_class_is_refused(tmp_path: Path) -> None:
    shutil.rmtree(pacs(tmp_path) / "sketch" / "house")
    with pytest.raises(DataError, match=r"domain 'sketch' in .* has no images of class 'house'"):
        load_benchmark(benchmark("pacs"), tmp_path)


def test_broken_image_is_refused_or_left_out(tmp_path: Path) -> None:
    domain_class_image(tmp_path, PACS, PACS_CLASSES, 2)
    bad = tmp_path / "sketch" / "dog" / "00002.jpg"
    bad.write_bytes(tiny()[:100])
    with pytest.raises(DataError, match=f"1 of 56 images cannot be read, the first is {bad}"):
        load_benchmark(benchmark("pacs"), tmp_path)
    data, _ = load_benchmark(benchmark("pacs"), tmp_path, unreadable="left out")
    assert len(data) == 55


def test_class_whose_only_image_is_broken_is_refused(tmp_path: Path) -> None:
    (pacs(tmp_path) / "sketch" / "dog" / "00001.jpg").write_bytes(b"no image")
    with pytest.raises(DataError, match=r"domain 'sketch' in .* has no images of class 'dog'"):
        load_benchmark(benchmark("pacs"), tmp_path, unreadable="left out")


def test_full_without_crossval_holds_the_validation_part(tmp_path: Path) -> None:
    domains = dict.fromkeys(VLCS, (13, 13, 13, 13, 13))
    jigen_vlcs(tmp_path, domains, dict.fromkeys(VLCS, (3, 3, 3, 3, 3)))
    for folder in tmp_path.rglob("crossval"):
        shutil.rmtree(folder)
    found = read_benchmark(benchmark("vlcs"), tmp_path)
    assert Counter(entry.part for entry in found.entries) == {
        "train": 180,
        "validation": 20,
        "test": 60,
    }
