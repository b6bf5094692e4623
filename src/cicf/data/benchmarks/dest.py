"""The place that an import writes to: new, and left as it was if the import fails."""

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cicf.core import DataError

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def check_new(dest: Path) -> None:
    """Refuse a place where something is already."""
    if dest.is_symlink() or dest.is_file() or (dest.is_dir() and any(dest.iterdir())):
        raise DataError(f"{dest} exists and is not empty; name a folder that does not exist yet")


@contextmanager
def scratch(dest: Path, what: str) -> Iterator[Path]:
    """Give a folder beside `dest` that is there for as long as it is needed."""
    path = dest.with_name(f".{dest.name}-{what}.{os.getpid()}.part")
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def cleared(dest: Path) -> Iterator[None]:
    """Remove the folders above `dest` that were made for it, if it does not come to be."""
    missing = [path for path in dest.parents if not path.exists()]
    try:
        yield
    finally:
        if not dest.exists():
            with suppress(OSError):  # it was never made, or somebody else uses it by now
                for path in missing:
                    path.rmdir()


@contextmanager
def told_if_full(dest: Path) -> Iterator[None]:
    """Say in a sentence that the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise DataError(
            f"there is no room for {dest} ({error.strerror}), so nothing was left there; make "
            "room, or name a folder on another disk"
        ) from error
