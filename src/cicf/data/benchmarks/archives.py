"""Archives of images: zip and tar, known by their content, and unpacked without trusting them."""

import lzma
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cicf.core import DataError

_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
_DAMAGED = (
    EOFError,
    NotImplementedError,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
)


def is_archive(path: Path) -> bool:
    """Tell whether a file starts like an archive; its name's ending is not believed."""
    with path.open("rb") as file:
        head = file.read(tarfile.BLOCKSIZE)
    return head.startswith((*_ZIP, *_COMPRESSED)) or _is_tar_header(head)


def extract(archive: Path, dest: Path, on_member: Callable[[int, int], None]) -> None:
    """Unpack an archive into a folder; `on_member` is told how many of how many files are out.

    Nothing is written if a member could leave the folder, is a link or a device, or if all members
    together do not fit on the disk. Hidden ones and those that macOS adds are left out.
    """
    if not is_archive(archive):
        raise DataError(f"{archive} is neither a zip nor a tar archive; name one, or a folder")
    is_zip = _head(archive).startswith(_ZIP)
    with _told_if_damaged(archive), _Zip(archive) if is_zip else _Tar(archive) as opened:
        members = opened.members()
        for member in members:
            _check(archive, member)
        files = [member for member in members if member.kind == "file"]
        _check_nesting(archive, files)
        _check_size(archive, files, dest)
        wanted = [member for member in files if not _is_hidden(member)]
        for count, member in enumerate(wanted, start=1):
            path = dest.joinpath(*_parts(member.name))
            path.parent.mkdir(parents=True, exist_ok=True)
            opened.copy(member, path)
            on_member(count, len(wanted))


class _Member(NamedTuple):
    name: str
    kind: str
    """`file`, `folder`, or what it is instead."""
    size: int
    is_encrypted: bool
    place: int


class _Zip:
    """Is an opened zip archive."""

    def __init__(self, path: Path) -> None:
        self.file = zipfile.ZipFile(path)

    def __enter__(self) -> "_Zip":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def members(self) -> list[_Member]:
        """Return what it holds, as it says."""
        return [
            # The name as it is in the archive: zipfile's own is cut at a zero byte.
            _Member(info.orig_filename, _zip_kind(info), info.file_size, info.flag_bits & 1 > 0, i)
            for i, info in enumerate(self.file.infolist())
        ]

    def copy(self, member: _Member, path: Path) -> None:
        """Write the content of a member to a file."""
        info = self.file.infolist()[member.place]
        with self.file.open(info) as reader, path.open("wb") as writer:
            shutil.copyfileobj(reader, writer)


class _Tar:
    """Is an opened tar archive, compressed or not."""

    def __init__(self, path: Path) -> None:
        self.file = tarfile.open(path)  # noqa: SIM115  (closed by __exit__)

    def __enter__(self) -> "_Tar":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def members(self) -> list[_Member]:
        """Return what it holds, as it says, if it is there to its end."""
        found = [
            _Member(info.name, _tar_kind(info), info.size, False, place)
            for place, info in enumerate(self.file.getmembers())
        ]
        # tarfile takes a header that is cut off, or damaged, for the end.
        assert self.file.fileobj is not None
        self.file.fileobj.seek(self.file.offset)
        if self.file.fileobj.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
            raise tarfile.ReadError("it ends early")
        return found

    def copy(self, member: _Member, path: Path) -> None:
        """Write the content of a member to a file, with none of its modes."""
        info = self.file.getmembers()[member.place]
        if hasattr(tarfile, "data_filter"):  # a second fence, of Python 3.11.4 and later
            tarfile.data_filter(info, "/nowhere")
        reader = self.file.extractfile(info)
        assert reader is not None
        with reader, path.open("wb") as writer:
            shutil.copyfileobj(reader, writer)


def _zip_kind(info: zipfile.ZipInfo) -> str:
    mode = info.external_attr >> 16
    if stat.S_ISLNK(mode):
        return "a link"
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a device"
    return "folder" if info.is_dir() else "file"


def _tar_kind(info: tarfile.TarInfo) -> str:
    if info.issym() or info.islnk():
        return "a link"
    if info.isdir():
        return "folder"
    return "file" if info.isfile() else "a device"


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4)


def _is_tar_header(head: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(head, tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


@contextmanager
def _told_if_damaged(archive: Path) -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        # gzip and bz2 have no error of their own for bad data; a full disk has a number.
        if error.errno is not None:
            raise
        raise _damaged(archive, error) from error


def _damaged(archive: Path, error: Exception) -> DataError:
    # Where nothing fits, tarfile lists what it tried, line by line.
    reason = "it is no tar inside" if "\n" in str(error) else str(error) or "it ends early"
    return DataError(f"{archive} is damaged or incomplete ({reason}); get it again")


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _is_hidden(member: _Member) -> bool:
    parts = _parts(member.name)
    return not parts or "__MACOSX" in parts or any(part.startswith(".") for part in parts)


def _check(archive: Path, member: _Member) -> None:
    wrong = None
    if member.name.startswith("/") or re.match("[A-Za-z]:", member.name):
        wrong = "has an absolute path"
    elif "\\" in member.name or "\0" in member.name:
        wrong = "has a backslash or a zero byte in its name"
    elif ".." in member.name.split("/"):
        wrong = "would lie outside the folder"
    elif member.kind not in ("file", "folder"):
        wrong = f"is {member.kind}"
    if wrong is not None:
        raise DataError(
            f"{archive} is not unpacked because its member {member.name!r} {wrong}; get the "
            "archive elsewhere, or unpack it yourself and name the folder"
        )
    if member.is_encrypted:
        raise DataError(
            f"{archive} is encrypted ({member.name!r}); unpack it with its password and name the "
            "folder"
        )


def _check_nesting(archive: Path, files: Sequence[_Member]) -> None:
    paths = {tuple(_parts(member.name)) for member in files}
    for path in paths:
        for length in range(1, len(path)):
            if path[:length] in paths:
                raise DataError(
                    f"{archive} is not unpacked because {'/'.join(path[:length])!r} is both a "
                    "file and a folder in it; get it again"
                )


def _check_size(archive: Path, files: Sequence[_Member], dest: Path) -> None:
    needed, free = sum(member.size for member in files), shutil.disk_usage(dest).free
    if needed > free:
        raise DataError(
            f"{archive} unpacks to {needed / 1e9:.1f} GB and {dest} has {free / 1e9:.1f} GB left; "
            "make room, or name a folder on another disk"
        )
