"""Import of benchmarks: what comes out, and that a failure leaves nothing."""

import csv
import hashlib
import io
import json
import resource
import tarfile
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import h5py
import numpy as np
import pytest
from PIL import Image
from tests.support.runs import contents

from cicf import DataError
from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.importing import Imported, import_benchmark

PACS = benchmark("pacs")
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
FAULTY = "sketch/dog/n02103406_4068-1.png"


def encoded(red: int, kind: str = "PNG", size: int = 4) -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (size, size), (red, 0, 0)).save(written, format=kind)
    return written.getvalue()


def pacs() -> dict[str, bytes]:
    """Return an image of every class in every domain, by path, no two alike."""
    paths = [f"{domain}/{label}/pic_001.png" for domain in DOMAINS for label in CLASSES]
    return {path: encoded(red) for red, path in enumerate(paths)}


def write(root: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def silent(stage: str, done: int, total: int) -> None:
    """Take no notice of progress."""


def imported(source: Path, *, skips_unreadable: bool = False) -> Imported:
    dest = source.parent / "out"
    return import_benchmark(PACS, source, dest, on_image=silent, skips_unreadable=skips_unreadable)


def images(dest: Path) -> dict[str, bytes]:
    found = contents(dest)
    return {name: each for name, each in found.items() if "/" in name}


def manifest(dest: Path) -> list[dict[str, str]]:
    with (dest / "manifest.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a folder with a small PACS."""
    return write(tmp_path / "PACS", pacs())


def test_images_keep_their_bytes(source: Path, tmp_path: Path) -> None:
    found = imported(source)
    assert images(tmp_path / "out") == pacs()
    assert found.folder == tmp_path / "out"
    assert found.domains == dict.fromkeys(DOMAINS, 7)
    assert found.images == 28


def test_the_manifest_has_the_hash_of_every_image(source: Path, tmp_path: Path) -> None:
    imported(source)
    rows = {row["path"]: row for row in manifest(tmp_path / "out")}
    assert rows.keys() == pacs().keys()
    for path, content in pacs().items():
        row = rows[path]
        assert [row["domain"], row["label"]] == path.split("/")[:2]
        assert row["sha256"] == hashlib.sha256(content).hexdigest()
        assert row["split"] == ""


def test_the_record_says_what_was_imported(source: Path, tmp_path: Path) -> None:
    found = imported(source)
    record = json.loads((tmp_path / "out" / "dataset.json").read_text())
    assert record == {
        "name": "pacs",
        "title": "PACS",
        "layout": found.layout,
        "images": 28,
        "fingerprint": found.fingerprint,
        "notes": list(found.notes),
    }


def test_the_fingerprint_is_that_of_the_images_and_not_of_their_place(
    source: Path, tmp_path: Path
) -> None:
    first = imported(source).fingerprint
    archive = zipped(tmp_path / "a.zip", {f"PACS/{name}": each for name, each in pacs().items()})
    again = import_benchmark(PACS, archive, tmp_path / "b" / "c", on_image=silent)
    assert again.fingerprint == first
    changed = write(tmp_path / "changed", {**pacs(), "photo/dog/pic_001.png": encoded(200)})
    other = import_benchmark(PACS, changed, tmp_path / "d", on_image=silent)
    assert other.fingerprint != first


def test_counts_that_are_not_the_official_ones_are_noted(source: Path) -> None:
    assert any("photo has 7 of 1670 images" in note for note in imported(source).notes)


def test_an_archive_is_unpacked_and_removed(tmp_path: Path) -> None:
    archive = zipped(
        tmp_path / "kfold.zip", {f"kfold/{name}": each for name, each in pacs().items()}
    )
    imported(archive)
    assert images(tmp_path / "out") == pacs()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kfold.zip", "out"]


def test_a_folder_with_an_archive_for_each_domain_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    for domain in DOMAINS:
        with tarfile.open(folder / f"{domain}.tar.gz", "w:gz") as archive:
            for path, content in pacs().items():
                if path.startswith(domain):
                    info = tarfile.TarInfo(path.partition("/")[2])
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
    imported(folder)
    assert images(tmp_path / "out") == pacs()


def test_lists_beside_an_archive_give_the_split(tmp_path: Path) -> None:
    folder = tmp_path / "downloads"
    folder.mkdir()
    zipped(folder / "kfold.zip", {f"kfold/{name}": each for name, each in pacs().items()})
    for domain in DOMAINS:
        lines = [f"{domain}/{each}/pic_001.png {i}\n" for i, each in enumerate(CLASSES, start=1)]
        (folder / f"{domain}_train_kfold.txt").write_text("".join(lines[:5]))
        (folder / f"{domain}_crossval_kfold.txt").write_text("".join(lines[5:]))
    imported(folder)
    splits = Counter(row["split"] for row in manifest(tmp_path / "out"))
    assert splits == {"train": 20, "validation": 8}


def test_archives_beside_their_content_are_left_alone(source: Path, tmp_path: Path) -> None:
    (source / "PACS.zip").write_bytes(b"PK\x03\x04 of another time")
    imported(source)
    assert images(tmp_path / "out") == pacs()


def test_hdf5_files_become_images(tmp_path: Path) -> None:
    folder = tmp_path / "hdf5"
    folder.mkdir()
    for domain in DOMAINS:
        for part, red in (("train", 50), ("val", 90)):
            with h5py.File(folder / f"{domain}_{part}.hdf5", "w") as file:
                pixels = np.zeros((7, 4, 4, 3), np.uint8)
                pixels[..., 2] = red  # the authors' files are blue, green, red
                file["images"], file["labels"] = pixels, np.arange(1, 8)
    imported(folder)
    path = tmp_path / "out" / "photo" / "giraffe" / "photo_validation_00002.png"
    with Image.open(path) as image:
        assert image.getpixel((0, 0)) == (90, 0, 0)
    assert Counter(row["split"] for row in manifest(tmp_path / "out")) == {
        "train": 28,
        "validation": 28,
    }


def test_progress_counts_every_image(source: Path, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    import_benchmark(PACS, source, tmp_path / "out", on_image=lambda *each: told.append(each))
    assert told == [("importing", done, 28) for done in range(1, 29)]


def test_one_name_in_two_parts_stays_two_images(tmp_path: Path) -> None:
    files = {}
    for path, content in pacs().items():
        domain, label, name = path.split("/")
        files[f"{domain}/train/{label}/{name}"] = content
        files[f"{domain}/val/{label}/{name}"] = encoded(200)
    imported(write(tmp_path / "dassl", files))
    found = images(tmp_path / "out")
    assert len(found) == 56
    assert found["photo/dog/train_pic_001.png"] == pacs()["photo/dog/pic_001.png"]
    assert found["photo/dog/validation_pic_001.png"] == encoded(200)


def test_names_that_differ_in_case_only_are_kept_apart(source: Path, tmp_path: Path) -> None:
    more = {"photo/dog/PIC_001.png": encoded(201), "photo/dog/pic_001_2.png": encoded(202)}
    imported(write(source, more))
    found = images(tmp_path / "out")
    assert len(found) == 30
    assert len({name.casefold() for name in found}) == 30
    assert set(found.values()) == {*pacs().values(), encoded(201), encoded(202)}
    assert found["photo/dog/pic_001_2.png"] == encoded(202)


def test_broken_images_are_named_and_counted(source: Path, tmp_path: Path) -> None:
    write(source, {"cartoon/dog/bad.png": b"no image", "photo/dog/half.png": encoded(1)[:40]})
    with pytest.raises(DataError, match=r"^2 of 30 images .* first is cartoon/dog/bad\.png;"):
        imported(source)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["PACS"]


def test_broken_images_are_left_out_when_asked(source: Path, tmp_path: Path) -> None:
    write(source, {"cartoon/dog/bad.png": b"no image"})
    found = imported(source, skips_unreadable=True)
    assert images(tmp_path / "out") == pacs()
    assert len(manifest(tmp_path / "out")) == 28
    assert "left out 1 images, unreadable: cartoon/dog/bad.png" in found.notes


def test_the_file_that_is_known_to_be_broken_is_explained(source: Path) -> None:
    write(source, {FAULTY: b"no image"})
    with pytest.raises(DataError, match=rf"{FAULTY} is broken in some copies of PACS"):
        imported(source)


def test_a_missing_domain_is_refused(tmp_path: Path) -> None:
    files = {name: each for name, each in pacs().items() if not name.startswith("photo")}
    source = write(tmp_path / "PACS", files)
    with pytest.raises(DataError, match=f"{source} has no image of the domain 'photo' of PACS"):
        imported(source)


def test_a_missing_class_is_refused(tmp_path: Path) -> None:
    files = {name: each for name, each in pacs().items() if name != "photo/horse/pic_001.png"}
    source = write(tmp_path / "PACS", files)
    with pytest.raises(DataError, match=f"{source} has no image of the class 'horse' in 'photo'"):
        imported(source)


def test_errors_name_the_archive_and_not_where_it_was_unpacked(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "empty.zip", {"readme.txt": b"nothing"})
    with pytest.raises(DataError) as told:
        imported(archive)
    assert str(archive) in str(told.value)
    assert ".out." not in str(told.value)
    assert [path.name for path in tmp_path.iterdir()] == ["empty.zip"]


def test_an_existing_folder_is_not_touched(source: Path, tmp_path: Path) -> None:
    write(tmp_path / "out", {"mine.txt": b"mine"})
    with pytest.raises(DataError, match="exists and is not empty"):
        imported(source)
    assert contents(tmp_path / "out") == {"mine.txt": b"mine"}


def test_an_empty_folder_is_filled(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    imported(source)
    assert images(tmp_path / "out") == pacs()


def test_source_and_destination_must_be_apart(source: Path) -> None:
    with pytest.raises(DataError, match=r"lies in .*, which is read"):
        import_benchmark(PACS, source, source / "out", on_image=silent)
    with pytest.raises(DataError, match="exists and is not empty"):
        import_benchmark(PACS, source, source.parent, on_image=silent)


def test_a_source_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist; name a folder"):
        imported(tmp_path / "nowhere")


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """Let the system refuse to write more than so many bytes to a file."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@pytest.mark.parametrize("is_packed", [False, True], ids=["folder", "archive"])
def test_no_room_leaves_nothing_behind(tmp_path: Path, is_packed: bool) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (200, 200, 3), np.uint8)
    large = io.BytesIO()
    Image.fromarray(noise).save(large, format="PNG")
    files = {**pacs(), "sketch/person/large.png": large.getvalue()}
    write_it = zipped if is_packed else write
    source = write_it(tmp_path / "source", files)
    dest = tmp_path / "new" / "out"
    with files_at_most(50_000), pytest.raises(DataError, match=f"there is no room for {dest}"):
        import_benchmark(PACS, source, dest, on_image=silent)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


@pytest.mark.parametrize("stage", ["unpacking PACS.zip", "importing"])
def test_an_interrupted_import_leaves_nothing_behind(tmp_path: Path, stage: str) -> None:
    def interrupt(now: str, done: int, total: int) -> None:
        if now == stage and done == total // 2:
            raise KeyboardInterrupt

    archive = zipped(tmp_path / "PACS.zip", pacs())
    with pytest.raises(KeyboardInterrupt):
        import_benchmark(PACS, archive, tmp_path / "new" / "out", on_image=interrupt)
    assert [path.name for path in tmp_path.iterdir()] == ["PACS.zip"]


def test_an_import_can_be_imported_again(source: Path, tmp_path: Path) -> None:
    first = imported(source)
    again = import_benchmark(PACS, tmp_path / "out", tmp_path / "again", on_image=silent)
    assert again.fingerprint == first.fingerprint
    assert images(tmp_path / "again") == pacs()
