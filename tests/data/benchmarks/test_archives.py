"""Archives, honest and otherwise."""

import gzip
import io
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.runs import contents

from cicf import DataError
from cicf.data.benchmarks.archives import extract, is_archive

IMAGES = {"PACS/photo/dog/a.jpg": b"one" * 500, "PACS/sketch/dog/b.png": b"two" * 700}


def zipped(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def tarred(path: Path, files: dict[str, bytes], kind: str = "") -> Path:
    with tarfile.open(path, f"w:{kind}") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def with_special_member(path: Path, kind: bytes, target: str = "") -> Path:
    with tarfile.open(path, "w") as archive:
        content = IMAGES["PACS/photo/dog/a.jpg"]
        first = tarfile.TarInfo("PACS/photo/dog/a.jpg")
        first.size = len(content)
        archive.addfile(first, io.BytesIO(content))
        info = tarfile.TarInfo("PACS/photo/dog/special")
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return path


def encrypted(path: Path) -> Path:
    """Return a zip whose members carry the flag of encryption, in both of their headers."""
    raw = bytearray(zipped(path, {"a.jpg": b"secret"}).read_bytes())
    raw[raw.index(b"PK\x03\x04") + 6] |= 1
    raw[raw.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(raw)
    return path


def unpacked(archive: Path) -> dict[str, bytes]:
    dest = archive.parent / "out"
    dest.mkdir(exist_ok=True)
    extract(archive, dest, lambda done, total: None)
    return contents(dest)


def assert_refused(archive: Path, *parts: str) -> None:
    """Assert that one sentence names the archive and these parts, and nothing is written."""
    with pytest.raises(DataError) as told:
        unpacked(archive)
    sentence = str(told.value)
    assert "\n" not in sentence
    for part in (str(archive), *parts):
        assert part in sentence
    assert contents(archive.parent / "out") == {}


@pytest.mark.parametrize(
    "write",
    [
        lambda path: zipped(path, IMAGES),
        lambda path: tarred(path, IMAGES),
        lambda path: tarred(path, IMAGES, "gz"),
        lambda path: tarred(path, IMAGES, "bz2"),
        lambda path: tarred(path, IMAGES, "xz"),
    ],
    ids=["zip", "tar", "tar.gz", "tar.bz2", "tar.xz"],
)
def test_archives_are_known_by_their_content(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    assert unpacked(write(tmp_path / "download")) == IMAGES


def test_endings_that_lie_do_not_matter(tmp_path: Path) -> None:
    assert unpacked(tarred(tmp_path / "PACS.zip", IMAGES, "gz")) == IMAGES


def test_files_that_are_no_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "PACS.zip"
    path.write_bytes(b"<html>quota exceeded</html>" * 100)
    assert not is_archive(path)
    (tmp_path / "out").mkdir()
    assert_refused(path, "neither a zip nor a tar")


def test_progress_counts_the_files(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    (tmp_path / "out").mkdir()
    archive = zipped(tmp_path / "a.zip", {"PACS/": b"", **IMAGES})
    extract(archive, tmp_path / "out", lambda done, total: seen.append((done, total)))
    assert seen == [(1, 2), (2, 2)]


def test_a_leading_dot_folder_is_not_hidden(tmp_path: Path) -> None:
    archive = tarred(tmp_path / "a.tar", {f"./{name}": each for name, each in IMAGES.items()})
    assert unpacked(archive) == IMAGES


def test_hidden_members_and_those_of_macos_are_left_out(tmp_path: Path) -> None:
    hidden = {"__MACOSX/PACS/._a.jpg": b"x", "PACS/.DS_Store": b"x", ".git/config": b"x"}
    assert unpacked(zipped(tmp_path / "a.zip", {**hidden, **IMAGES})) == IMAGES


def test_modes_of_members_are_not_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo("run.sh")
        info.mode = 0o4777
        archive.addfile(info)
    unpacked(path)
    assert (tmp_path / "out" / "run.sh").stat().st_mode & 0o7111 == 0


@pytest.mark.parametrize("pack", [zipped, tarred], ids=["zip", "tar"])
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../evil.jpg", "outside the folder"),
        ("PACS/../../evil.jpg", "outside the folder"),
        ("/tmp/evil.jpg", "absolute path"),
        ("C:/evil.jpg", "absolute path"),
        ("..\\evil.jpg", "backslash"),
        ("PACS/..\\..\\evil.jpg", "backslash"),
    ],
)
def test_members_that_would_leave_the_folder_are_refused(
    tmp_path: Path, pack: Callable[[Path, dict[str, bytes]], Path], name: str, reason: str
) -> None:
    archive = pack(tmp_path / "a", {**IMAGES, name: b"evil"})
    assert_refused(archive, repr(name), reason)


@pytest.mark.parametrize(
    ("kind", "target", "reason"),
    [
        (tarfile.SYMTYPE, "a.jpg", "is a link"),
        (tarfile.SYMTYPE, "/etc/passwd", "is a link"),
        (tarfile.LNKTYPE, "PACS/photo/dog/a.jpg", "is a link"),
        (tarfile.CHRTYPE, "", "is a device"),
        (tarfile.FIFOTYPE, "", "is a device"),
    ],
)
def test_links_and_devices_are_refused(
    tmp_path: Path, kind: bytes, target: str, reason: str
) -> None:
    archive = with_special_member(tmp_path / "a.tar", kind, target)
    assert_refused(archive, "'PACS/photo/dog/special'", reason)


def test_links_in_a_zip_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("photo")
        info.create_system, info.external_attr = 3, 0o120777 << 16
        archive.writestr(info, "/etc")
    assert_refused(path, "'photo'", "is a link")


def test_encrypted_archives_are_told(tmp_path: Path) -> None:
    assert_refused(encrypted(tmp_path / "a.zip"), "is encrypted", "password")


@pytest.mark.parametrize("kind", ["", "gz", "bz2", "xz"])
def test_truncated_tars_are_told(tmp_path: Path, kind: str) -> None:
    noise = {f"{index}.jpg": os.urandom(3000) for index in range(8)}
    path = tarred(tmp_path / "a", noise, kind)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert_refused(path, "damaged or incomplete", "get it again")


def test_a_tar_that_ends_between_two_members_is_told(tmp_path: Path) -> None:
    path = tarred(tmp_path / "a.tar", {"a.jpg": bytes(512), "b.jpg": bytes(512)})
    path.write_bytes(path.read_bytes()[: 2 * 512])
    assert_refused(path, "damaged or incomplete")


def test_truncated_zips_are_told(tmp_path: Path) -> None:
    path = zipped(tmp_path / "a.zip", IMAGES)
    path.write_bytes(path.read_bytes()[:-60])
    assert_refused(path, "damaged or incomplete", "get it again")


def test_changed_bytes_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.jpg", b"the content of an image")
    path.write_bytes(path.read_bytes().replace(b"content", b"c0ntent"))
    with pytest.raises(DataError, match=f"{path} is damaged or incomplete .*'a.jpg'"):
        unpacked(path)


def test_compressed_files_without_a_tar_are_told(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg.gz"
    path.write_bytes(gzip.compress(b"no tar"))
    assert_refused(path, "no tar inside")


def test_archives_larger_than_the_disk_are_refused(tmp_path: Path) -> None:
    claimed = 2**32 - 2  # the most that a zip says without an extension
    count = shutil.disk_usage(tmp_path).free // claimed + 2
    path = zipped(tmp_path / "bomb.zip", {f"{index}.jpg": b"x" for index in range(count)})
    raw = path.read_bytes()
    directory = raw.index(b"PK\x01\x02")
    listed = raw[directory:].split(b"PK\x01\x02")
    listed = [each[:20] + claimed.to_bytes(4, "little") + each[24:] for each in listed[1:]]
    path.write_bytes(raw[:directory] + b"".join(b"PK\x01\x02" + each for each in listed))
    assert_refused(path, "unpacks to", "make room")


def test_a_file_that_is_a_folder_too_is_refused(tmp_path: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"photo": b"x", "photo/dog/a.jpg": b"y"})
    assert_refused(archive, "'photo'", "both a file and a folder")
