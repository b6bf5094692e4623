"""Files that are there whole or not at all."""

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cicf.core.errors import BusyError

_LEFTOVER = re.compile(r"\..+\.\d+(\.\w+)?")
"""Names that are given to what is not whole yet: `.stem.<process>.ending`."""
MANY = 100
"""Files of a folder above which they are not waited for one by one."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, with the same ending; on success it becomes `path`.

    What had that name is replaced only then, and nothing temporary is left after a failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`, which must not exist; on success it becomes `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        _flush_all([file for file in temporary.rglob("*") if file.is_file()])
        temporary.replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep a folder to this process; the lock of a process that was killed is gone with it."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever had the lock may have removed the file since it was opened here.
            is_current = path.exists() and path.stat().st_ino == os.fstat(file.fileno()).st_ino
        except OSError:
            is_current = False
        if not is_current:
            raise BusyError(
                f"another process works in {folder}; wait for it, or name another folder with --out"
            )
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def is_locked(folder: Path) -> bool:
    """Tell whether a process keeps a folder to itself right now."""
    try:
        with (folder / ".lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except FileNotFoundError:
        return False
    return False


def remove_leftovers(folder: Path) -> None:
    """Remove what writers that were killed have left below a folder which no other one uses."""
    for path in list(folder.rglob(".*")):
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _flush_all(paths: list[Path]) -> None:
    if len(paths) > MANY:
        # Waiting for each in turn takes minutes; this waits for the whole system, once.
        os.sync()
        return
    for path in paths:
        _flush(path)


def _flush(path: Path) -> None:
    """Wait until a file's bytes are on the disk, so that a rename never outruns them."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
