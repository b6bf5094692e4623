"""Images in HDF5 files and in tables of Hugging Face, written here as their makers write them."""

import io
import json
import sys
from collections import Counter
from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from cicf import DataError
from cicf.data.benchmarks.containers import read_containers
from cicf.data.benchmarks.entries import Found
from cicf.data.benchmarks.facts import benchmark

PACS = benchmark("pacs")
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
ODD_ORDER = ["person", "dog", "house", "elephant", "horse", "giraffe", "guitar"]


def reddish(count: int) -> np.ndarray:
    """Return RGB images, each with a red of its own, and no blue."""
    images = np.zeros((count, 5, 6, 3), np.uint8)
    images[..., 0] = 100 + np.arange(count)[:, None, None]
    return images


def write_hdf5(path: Path, labels: object, images: np.ndarray | None = None) -> Path:
    """Write a file as the authors do, its channels blue, green, red, unless images are given."""
    found = reddish(len(labels))[..., ::-1] if images is None else images
    with h5py.File(path, "w") as file:
        file["images"], file["labels"] = found, labels
    return path


def pixels(content: bytes) -> np.ndarray:
    with Image.open(io.BytesIO(content)) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def read(path: Path) -> Found:
    found = read_containers(PACS, path)
    assert found is not None
    return found


ALL = list(range(1, 8))


def test_a_folder_without_containers_has_none(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("photo/dog/a.jpg 1")
    (tmp_path / ".hidden.hdf5").write_bytes(b"")
    assert read_containers(PACS, tmp_path) is None
    assert read_containers(PACS, tmp_path / "list.txt") is None


def test_hdf5_labels_from_one_are_classes_in_alphabetical_order(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", [7, 1, 3, 2, 4, 5, 6])
    found = read(tmp_path)
    names = ["person", "dog", "giraffe", "elephant", "guitar", "horse", "house"]
    assert [entry.label for entry in found.entries] == names
    assert {(entry.domain, entry.part) for entry in found.entries} == {("photo", "train")}
    assert found.entries[1].name == "photo_train_00001.png"
    assert "labels are counted from 1" in found.notes
    assert found.problems == ()


def test_hdf5_labels_from_zero_are_seen(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", [0, 5])
    found = read(tmp_path)
    assert [entry.label for entry in found.entries] == ["dog", "house"]
    assert "labels are counted from 0" in found.notes


def test_hdf5_base_of_labels_is_found_from_all_files(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.h5", [1, 2])
    write_hdf5(tmp_path / "sketch_train.h5", [3, 7])
    labels = [entry.label for entry in read(tmp_path).entries]
    assert labels == ["dog", "elephant", "giraffe", "person"]


@pytest.mark.parametrize("labels", [[1, 2, 6], [0, 7], [-1, 3], [2, 8]])
def test_hdf5_labels_that_could_be_counted_in_two_ways_are_refused(
    tmp_path: Path, labels: list[int]
) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", labels)
    with pytest.raises(DataError, match=f"span {labels[0]} to {labels[-1]}, .* 7 classes"):
        read(tmp_path)


def test_hdf5_test_files_that_repeat_train_and_val_are_left_out(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    write_hdf5(tmp_path / "photo_val.hdf5", [1, 2])
    write_hdf5(tmp_path / "photo_test.hdf5", [*ALL, 1, 2])
    found = read(tmp_path)
    assert Counter(entry.part for entry in found.entries) == {"train": 7, "validation": 2}
    assert "photo_test.hdf5 repeats train and val and was left out" in found.notes


def test_hdf5_test_files_alone_are_all_images(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_test.hdf5", ALL)
    entries = read(tmp_path).entries
    assert {entry.part for entry in entries} == {None}
    assert entries[6].name == "photo_all_00006.png"


def test_hdf5_test_files_beside_train_alone_are_all_images(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    write_hdf5(tmp_path / "photo_test.hdf5", [*ALL, 1, 2])
    found = read(tmp_path)
    assert [entry.part for entry in found.entries] == [None] * 9
    assert any("photo_train.hdf5 was left out" in note for note in found.notes)


def test_hdf5_test_files_of_other_images_are_a_part(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    write_hdf5(tmp_path / "photo_val.hdf5", [1, 2])
    write_hdf5(tmp_path / "photo_test.hdf5", [3])
    assert Counter(entry.part for entry in read(tmp_path).entries)["test"] == 1


def test_two_hdf5_files_of_one_part_are_refused(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "art_painting_train.hdf5", ALL)
    write_hdf5(tmp_path / "art_train.hdf5", ALL)
    with pytest.raises(DataError, match="both the same part of art_painting; keep one"):
        read(tmp_path)


def test_hdf5_channels_of_the_authors_become_red_green_blue(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    found = read(tmp_path)
    for row, entry in enumerate(found.entries):
        assert np.array_equal(pixels(entry.image.read()), reddish(7)[row])
    assert "channels are blue, green, red, by the colours of 7 images" in found.notes


def test_hdf5_channels_in_the_usual_order_are_kept(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL, reddish(7))
    found = read(tmp_path)
    assert np.array_equal(pixels(found.entries[3].image.read()), reddish(7)[3])
    assert "channels are red, green, blue, by the colours of 7 images" in found.notes


def test_hdf5_grey_images_are_taken_in_the_authors_order(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "sketch_train.hdf5", ALL, np.full((7, 5, 6, 3), 9, np.uint8))
    assert any("the authors' order" in note for note in read(tmp_path).notes)


@pytest.mark.parametrize(
    ("scale", "kind"), [(1 / 255, "float32"), (1.0, "float32"), (1.0, "float64")]
)
def test_hdf5_images_of_floats_keep_their_levels(tmp_path: Path, scale: float, kind: str) -> None:
    images = np.zeros((7, 16, 16, 3), kind)
    images[..., 2] = np.arange(256).reshape(16, 16) * scale
    write_hdf5(tmp_path / "photo_train.hdf5", ALL, images)
    found = pixels(read(tmp_path).entries[6].image.read())
    assert found[..., 0].ravel().tolist() == list(range(256))
    assert not found[..., 1:].any()


def test_hdf5_rows_are_read_across_blocks(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", [*ALL, *[1] * 63])
    entries = read(tmp_path).entries
    reds = [int(pixels(entries[row].image.read())[0, 0, 0]) for row in (69, 0, 33, 31, 32)]
    assert reds == [169, 100, 133, 131, 132]


@pytest.mark.parametrize(
    ("images", "told"),
    [
        (np.zeros((7, 3, 5, 6), np.uint8), r"uint8 of shape \(7, 3, 5, 6\)"),
        (np.zeros((7, 5, 6), np.uint8), r"uint8 of shape \(7, 5, 6\)"),
        (np.zeros((7, 5, 6, 3), np.int64), r"int64 of shape \(7, 5, 6, 3\)"),
        (np.full((7, 5, 6, 3), 300.0), "values from 0 to 300"),
        (np.full((7, 5, 6, 3), -1.0), "values from -1 to 0"),
        (np.full((7, 5, 6, 3), np.nan), "must span 0 to 1 or 0 to 255"),
    ],
)
def test_hdf5_images_of_another_kind_are_refused(
    tmp_path: Path, images: np.ndarray, told: str
) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL, images)
    with pytest.raises(DataError, match=told):
        read(tmp_path)


@pytest.mark.parametrize("key", ["images", "labels"])
def test_hdf5_files_without_a_key_are_refused(tmp_path: Path, key: str) -> None:
    with h5py.File(write_hdf5(tmp_path / "photo_train.hdf5", ALL), "a") as file:
        del file[key]
    with pytest.raises(DataError, match=rf"photo_train.hdf5 has no array '{key}' but '\w+'"):
        read(tmp_path)


@pytest.mark.parametrize("labels", [[1, 7], np.ones((7, 7), int), np.full(7, 1.5)])
def test_hdf5_labels_that_are_not_one_an_image_are_refused(tmp_path: Path, labels: object) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", labels, reddish(7))
    with pytest.raises(DataError, match="one whole number for each of the 7 images"):
        read(tmp_path)


def test_hdf5_files_of_no_domain_are_a_problem(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "clipart_train.hdf5", ALL)
    write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    found = read(tmp_path)
    assert len(found.entries) == 7
    assert len(found.problems) == 1
    assert found.problems[0].startswith("clipart_train.hdf5 names no domain of PACS")


@pytest.mark.parametrize("size", [0, 100, 1500])
def test_files_that_are_no_hdf5_or_end_early_are_told(tmp_path: Path, size: int) -> None:
    path = write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=rf"{path} cannot be read as HDF5 .*; get it again"):
        read(path)


def encoded(red: int, kind: str = "JPEG") -> bytes:
    written = io.BytesIO()
    Image.new("RGB", (6, 5), (red, 0, 0)).save(written, format=kind)
    return written.getvalue()


def rows(num: int = 1) -> list[dict[str, object]]:
    """Return an image of every class in every domain, `num` times, with labels in ODD_ORDER."""
    return [
        {
            "image": {"bytes": encoded(index), "path": f"pic_{index:03d}.jpg"},
            "domain": domain,
            "label": ODD_ORDER.index(label),
        }
        for domain in DOMAINS
        for label in CLASSES
        for index in range(num)
    ]


def metadata(**names: list[str]) -> dict[str, str]:
    features = {name: {"names": each, "_type": "ClassLabel"} for name, each in names.items()}
    return {"huggingface": json.dumps({"info": {"features": features}})}


def table_of(found: list[dict[str, object]], notes: dict[str, str] | None = None) -> pa.Table:
    return pa.Table.from_pylist(found).replace_schema_metadata(notes or metadata(label=ODD_ORDER))


def write_parquet(path: Path, table: pa.Table, group: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group)
    return path


def write_arrow(path: Path, table: pa.Table, group: int = 10) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=group)
    return path


def assert_complete(found: Found, num: int) -> None:
    """Assert that every image of `rows(num)` is there, with its own name and bytes."""
    assert [(e.domain, e.label, e.name) for e in found.entries] == [
        (domain, label, f"pic_{index:03d}.jpg")
        for domain in DOMAINS
        for label in CLASSES
        for index in range(num)
    ]
    for place, entry in enumerate(found.entries):
        assert entry.image.read() == encoded(place % num)
    assert found.problems == ()


def test_parquet_classes_are_matched_by_name(tmp_path: Path) -> None:
    write_parquet(tmp_path / "data" / "train-00000-of-00001.parquet", table_of(rows(3)))
    found = read(tmp_path)
    assert_complete(found, 3)
    assert {entry.part for entry in found.entries} == {None}


def test_arrow_streams_of_a_split_folder_are_read(tmp_path: Path) -> None:
    write_arrow(tmp_path / "train" / "data-00000-of-00001.arrow", table_of(rows(3)))
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    write_arrow(tmp_path / "train" / "cache-1234.arrow", pa.table({"indices": [1, 2]}))
    assert_complete(read(tmp_path), 3)


def test_arrow_files_with_a_footer_are_read(tmp_path: Path) -> None:
    table, path = table_of(rows(2)), tmp_path / "a.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    assert_complete(read(path), 2)


def test_several_files_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    table = table_of(rows(2))
    write_parquet(tmp_path / "train-00001-of-00002.parquet", table.slice(30))
    write_parquet(tmp_path / "train-00000-of-00002.parquet", table.slice(0, 30))
    assert_complete(read(tmp_path), 2)


def test_names_of_classes_may_stand_beside_the_files(tmp_path: Path) -> None:
    table = table_of(rows(2)).replace_schema_metadata(None)
    write_arrow(tmp_path / "data-00000-of-00001.arrow", table)
    features = {"label": {"names": ODD_ORDER, "_type": "ClassLabel"}}
    (tmp_path / "dataset_info.json").write_text(json.dumps({"features": features}))
    assert_complete(read(tmp_path), 2)


def test_labels_and_domains_may_be_names_or_numbers(tmp_path: Path) -> None:
    table = table_of(
        [
            {
                "image": row["image"],
                "style": DOMAINS[::-1].index(row["domain"]),
                "category": ODD_ORDER[row["label"]].title(),
                "split": "test",
            }
            for row in rows(2)
        ],
        metadata(style=list(DOMAINS[::-1])),
    )
    assert_complete(read(write_parquet(tmp_path / "a.parquet", table)), 2)


@pytest.mark.parametrize("write", [write_parquet, write_arrow])
def test_numbers_without_names_are_refused(tmp_path: Path, write: object) -> None:
    ending = ".arrow" if write is write_arrow else ".parquet"
    table = table_of(rows()).replace_schema_metadata(None)
    with pytest.raises(DataError, match=r"'label' of .* is int64 without names .* by name"):
        read(write(tmp_path / f"a{ending}", table))


def test_tables_without_domains_are_refused(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "a.parquet", table_of(rows()).drop_columns("domain"))
    with pytest.raises(DataError, match=r"no column for the domain.* are 'image', 'label'"):
        read(path)


def test_names_that_the_benchmark_does_not_know_are_counted(tmp_path: Path) -> None:
    found = rows()
    for row in found[:3]:
        row["domain"] = "quickdraw"
    found[5]["label"] = 7
    path = write_parquet(
        tmp_path / "a.parquet", table_of(found, metadata(label=[*ODD_ORDER, "cat"]))
    )
    assert read(path).problems == (
        "3 rows are of 'quickdraw', which is no domain of PACS; left out",
        "1 row is of 'cat', which is no class of PACS; left out",
    )
    assert len(read(path).entries) == 24


def test_a_label_without_a_class_is_a_problem(tmp_path: Path) -> None:
    found = rows()
    found[0]["label"] = -1
    problems = read(write_parquet(tmp_path / "a.parquet", table_of(found))).problems
    assert problems == ("1 row is of '-1', which is no class of PACS; left out",)


def test_names_that_repeat_or_are_missing_become_numbers(tmp_path: Path) -> None:
    found = rows(4)[:4]
    for row, path in zip(found, ("a/x.jpg", "b/X.JPG", None, "../.."), strict=True):
        row["image"]["path"] = path
    found[3]["image"]["bytes"] = encoded(0, "PNG")
    entries = read(write_parquet(tmp_path / "a.parquet", table_of(found))).entries
    names = [entry.name for entry in entries]
    assert names == ["00000.jpg", "00001.JPG", "00002.jpg", "00003.png"]


def test_names_lead_to_no_other_folder(tmp_path: Path) -> None:
    found = rows(4)[:4]
    for row, path in zip(found, ("../a.jpg", "C:\\b.jpg", "/c.jpg", ".d.jpg"), strict=True):
        row["image"]["path"] = path
    entries = read(write_parquet(tmp_path / "a.parquet", table_of(found))).entries
    assert [entry.name for entry in entries] == ["a.jpg", "b.jpg", "c.jpg", "00003.jpg"]


def test_rows_without_bytes_are_told_when_they_are_read(tmp_path: Path) -> None:
    found = rows(2)
    found[1]["image"] = {"bytes": None, "path": "elsewhere/b.jpg"}
    entries = read(write_parquet(tmp_path / "a.parquet", table_of(found))).entries
    with pytest.raises(DataError, match=r"row 1 of .* has no bytes of an image"):
        entries[1].image.read()


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
@pytest.mark.parametrize("size", [0, 50, 400])
def test_tables_that_end_early_are_told(tmp_path: Path, ending: str, size: int) -> None:
    write = write_arrow if ending == ".arrow" else write_parquet
    path = write(tmp_path / f"a{ending}", table_of(rows(2)))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match=rf"{path} cannot be read as a table .*; get it again"):
        read(path)


def test_two_kinds_of_containers_are_refused(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL)
    write_parquet(tmp_path / "a.parquet", table_of(rows()))
    with pytest.raises(DataError, match=r"photo_train.hdf5\) and tables \(a.parquet\)"):
        read(tmp_path)


@pytest.mark.parametrize(("library", "name"), [("h5py", "photo_train.h5"), ("pyarrow", "a.arrow")])
def test_a_missing_library_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, library: str, name: str
) -> None:
    (tmp_path / name).write_bytes(b"")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(DataError, match=r"needs the extra data; .* pip install 'cicf\[data\]'"):
        read(tmp_path)


def test_hdf5_with_labels_that_are_texts_is_refused(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", [b"dog"] * 7)
    with pytest.raises(DataError, match="they must be one whole number for each of the 7 images"):
        read(tmp_path)


def test_hdf5_with_images_of_no_pixels_is_refused(tmp_path: Path) -> None:
    write_hdf5(tmp_path / "photo_train.hdf5", ALL, np.zeros((7, 0, 0, 3), dtype=np.uint8))
    with pytest.raises(DataError, match=r"they must be uint8 or float of shape"):
        read(tmp_path)


def test_hdf5_with_a_group_for_an_array_is_refused(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "photo_train.hdf5", "w") as file:
        file.create_group("images")
        file["labels"] = ALL
    with pytest.raises(DataError, match="has no array 'images'"):
        read(tmp_path)
