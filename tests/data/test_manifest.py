"""Manifests: own data by a list of files, and what such a list may get wrong."""

import json
import logging
from pathlib import Path

import pytest
from tests.support.benchmarks import fill, tiny

from cicf import DataError
from cicf.data.domains import PARTS
from cicf.data.hashes import sha256_of
from cicf.data.manifest import ManifestRow, load_manifest, write_manifest


def images(root: Path) -> Path:
    """Write six images in no order that says anything."""
    fill(root / "files", [f"{number}.jpg" for number in range(6)])
    return root


def csv_of(root: Path, *lines: str) -> Path:
    path = images(root) / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def labelled(header: str, row: str) -> list[str]:
    """Return a manifest of the six images, dogs and cats in turn."""
    labels = ("dog", "cat")
    rows = [row.format(path=f"files/{n}.jpg", label=labels[n % 2], n=n) for n in range(6)]
    return [header, *rows]


def test_path_and_label_are_enough(tmp_path: Path) -> None:
    data = load_manifest(csv_of(tmp_path, *labelled("path,label", "{path},{label}")))
    assert data.classes == ("cat", "dog")
    assert data.domains == ("all",)
    assert data.y.tolist() == [1, 0] * 3
    assert data.part is None
    assert data.images.paths[5] == tmp_path / "files" / "5.jpg"
    assert data[0][0].shape == (3, 2, 2)


def test_domains_and_splits_are_taken_over(tmp_path: Path) -> None:
    path = csv_of(
        tmp_path,
        "split,label,path,domain,weight",
        "train,dog,files/0.jpg,street,1",
        "train,cat,files/1.jpg,street,1",
        "dev,dog,files/2.jpg,street,1",
        "Val,cat,files/3.jpg,home,1",
        "test,dog,files/4.jpg,home,1",
        ",cat,files/5.jpg,home,1",
    )
    data = load_manifest(path)
    assert data.domains == ("home", "street")
    assert data.domain.tolist() == [1, 1, 1, 0, 0, 0]
    train, validation, test = (PARTS.index(part) for part in ("train", "validation", "test"))
    assert data.part.tolist() == [train, train, validation, validation, test, -1]


def test_empty_columns_are_as_if_missing(tmp_path: Path) -> None:
    lines = labelled("path,label,domain,split", "{path},{label},,")
    data = load_manifest(csv_of(tmp_path, *lines))
    assert data.domains == ("all",)
    assert data.part is None


def test_paths_may_be_absolute_and_have_commas(tmp_path: Path) -> None:
    fill(tmp_path / "else, where", ["a.jpg", "b.jpg", "c.jpg", "d.jpg"])
    rows = [f'"{tmp_path}/else, where/{n}.jpg",{"cat" if n in "ab" else "dog"}' for n in "abcd"]
    data = load_manifest(csv_of(tmp_path / "other", "path,label", *rows))
    assert len(data) == 4


def test_file_of_a_spreadsheet_is_read(tmp_path: Path) -> None:
    path = csv_of(tmp_path)
    text = "\r\n".join(labelled("path,label", "{path},{label}"))
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert load_manifest(path).classes == ("cat", "dog")


def test_lines_of_json_are_read(tmp_path: Path) -> None:
    path = images(tmp_path) / "own.jsonl"
    rows = [{"path": f"files/{n}.jpg", "label": n % 2, "split": None, "size": 3} for n in range(6)]
    path.write_text("\n\n".join(map(json.dumps, rows)))
    data = load_manifest(path)
    assert data.classes == ("0", "1")
    assert data.y.tolist() == [0, 1] * 3
    assert data.part is None


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (
            ["file,label", "a,b"],
            "has no column 'path' but 'file', 'label'; its first line must name the columns",
        ),
        (["path,class", "a,b"], "has no column 'label'"),
        ([], "has no column 'path'"),
        (["path,label"], "lists no image"),
        (["path,label,domain", "files/0.jpg,dog"], r"line 2 of .* it has 2 cells"),
        (["path,label", "files/0.jpg,dog", "a,b,c"], r"line 3 of .* it has more cells"),
        (["path,label", "files/0.jpg,"], r"line 2 of .* label is missing or empty"),
        (["path,label", ",dog"], r"line 2 of .* path is missing or empty"),
        (["path,label,split", "files/0.jpg,dog,holdout"], r"line 2 of .* split is 'holdout'"),
        (
            ["path,label", "files/0.jpg,dog", "files/0.jpg,cat"],
            r"line 3 of .* 'files/0.jpg' is in line 2 already",
        ),
        (
            ["path,label,domain", "files/0.jpg,dog,a", "files/1.jpg,cat,"],
            r"1 of the 2 images in .* have no domain, the first is .*1.jpg",
        ),
        (
            ["path,label", "files/0.jpg,dog", "files/8.jpg,dog", "files/9.jpg,cat"],
            r"2 of the 3 images in .* do not exist, the first is .*files/8.jpg",
        ),
        (["path,label", '"files/0.jpg,dog'], r"line 2 of .* it is no CSV"),
    ],
)
def test_manifest_that_cannot_be_used_is_refused(
    tmp_path: Path, lines: list[str], says: str
) -> None:
    with pytest.raises(DataError, match=says):
        load_manifest(csv_of(tmp_path, *lines))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{'path': 1}", r"line 2 of .* it is no JSON"),
        ("[1, 2]", r"line 2 of .* it is no object"),
        ('{"label": "dog"}', r"line 2 of .* path is missing or empty"),
        ('{"path": "a.jpg", "label": ["dog"]}', r"line 2 of .* label is \['dog'\]; it must be a"),
    ],
)
def test_line_of_json_that_cannot_be_used_is_refused(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text('{"path": "files/0.jpg", "label": "dog"}\n' + line)
    with pytest.raises(DataError, match=says):
        load_manifest(path)


@pytest.mark.parametrize("name", ["own.csv", "own.jsonl"])
def test_manifest_in_another_encoding_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes("path,label\nä.jpg,dög\n".encode("latin-1"))
    with pytest.raises(DataError, match="is not in UTF-8"):
        load_manifest(tmp_path / name)


def test_other_endings_and_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"must end in \.csv or \.jsonl"):
        load_manifest(tmp_path / "own.txt")
    with pytest.raises(DataError, match="is no file"):
        load_manifest(tmp_path / "own.csv")


def test_broken_image_is_named_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = csv_of(tmp_path, *labelled("path,label", "{path},{label}"))
    bad = tmp_path / "files" / "3.jpg"
    bad.write_bytes(b"no image")
    with pytest.raises(DataError, match=f"1 of 6 images cannot be read, the first is {bad}"):
        load_manifest(path)
    with caplog.at_level(logging.WARNING):
        assert len(load_manifest(path, unreadable="left out")) == 5
    assert "left out 1 of 6 images" in caplog.text


def test_one_class_is_enough_to_score_but_not_to_train(tmp_path: Path) -> None:
    path = csv_of(tmp_path, *labelled("path,label", "{path},dog"))
    with pytest.raises(DataError, match="has one class only, 'dog'"):
        load_manifest(path)
    assert load_manifest(path, is_for_training=False).classes == ("dog",)


def hashed(root: Path) -> Path:
    """Write a manifest with the hash of every image."""
    images(root)
    rows = [
        ManifestRow(f"files/{n}.jpg", f"class {n % 2}, or so", "a", "", sha256_of(path))
        for n, path in enumerate(sorted((root / "files").iterdir()))
    ]
    write_manifest(root, rows)
    return root / "manifest.csv"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    data = load_manifest(hashed(tmp_path))
    assert data.classes == ("class 0, or so", "class 1, or so")
    assert data.domains == ("a",)
    assert data.y.tolist() == [0, 1] * 3
    assert [path.name for path in tmp_path.iterdir() if path.name != "files"] == ["manifest.csv"]


def test_image_that_is_not_what_its_hash_says_is_refused(tmp_path: Path) -> None:
    path = hashed(tmp_path)
    changed = tmp_path / "files" / "2.jpg"
    changed.write_bytes(tiny(grey=7))
    with pytest.raises(DataError, match=f"{changed} has changed since it was imported"):
        load_manifest(path, unreadable="left out")


def test_hash_is_of_the_bytes_by_sha256(tmp_path: Path) -> None:
    (tmp_path / "abc").write_bytes(b"abc")
    # The example of FIPS 180-2.
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert sha256_of(tmp_path / "abc") == digest


def test_image_with_a_hash_is_not_decoded(tmp_path: Path) -> None:
    images(tmp_path)
    (tmp_path / "files" / "0.jpg").write_bytes(b"no image")
    lines = [
        f"files/{n}.jpg,{'dog' if n < 3 else 'cat'},{sha256_of(tmp_path / 'files' / f'{n}.jpg')}"
        for n in range(6)
    ]
    path = tmp_path / "own.csv"
    path.write_text("\n".join(["path,label,sha256", *lines]))
    assert len(load_manifest(path)) == 6


@pytest.mark.parametrize("spelled", ["./files/0.jpg", "files/../files/0.jpg", "linked/0.jpg"])
def test_one_file_is_one_image_however_it_is_spelled(tmp_path: Path, spelled: str) -> None:
    path = csv_of(tmp_path, "path,label", "files/0.jpg,dog", f"{spelled},cat")
    (tmp_path / "linked").symlink_to(tmp_path / "files")
    with pytest.raises(DataError, match=f"'{spelled}' is in line 2 already"):
        load_manifest(path)


def test_column_that_is_named_twice_is_refused(tmp_path: Path) -> None:
    path = csv_of(tmp_path, "path,label,Label", "files/0.jpg,dog,street")
    with pytest.raises(DataError, match="has 2 columns 'label'; keep one of them"):
        load_manifest(path)


def test_names_of_columns_and_cells_may_have_spaces_and_capitals(tmp_path: Path) -> None:
    lines = labelled("Path, Label, Domain", "{path}, {label}, street")
    data = load_manifest(csv_of(tmp_path, *lines))
    assert (data.classes, data.domains) == (("cat", "dog"), ("street",))


@pytest.mark.parametrize("line", ['{"path": "a", "label": ' + "1" * 5000 + "}", "[" * 100_000])
def test_line_that_json_cannot_take_is_refused(tmp_path: Path, line: str) -> None:
    path = images(tmp_path) / "own.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(DataError, match="line 1 of"):
        load_manifest(path)
