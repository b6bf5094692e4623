"""Files that are there whole or not at all."""

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from cicf.core.errors import BusyError

_LEFTOVER = re.compile(r"\..+\.(\d+)\.part(\.\w+)?")
"""Names that are given to what is not whole yet: `.stem.<process>.part.ending`."""
_TRIES, _MOMENT = 10, 0.02
MANY = 100
"""Files of a folder above which they are not waited for one by one."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path`, with the same ending; on success it becomes `path`.

    What had that name is replaced only then, and nothing temporary is left after a failure.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield temporary
        _flush(temporary)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a temporary folder beside `path`, which must not exist; on success it becomes `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
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
    path = folder / ".lock"
    with _opened(path) as file:
        if not _is_taken(file) or not _is_still(path, file):
            raise BusyError(
                f"another process works in {folder}; wait for it, or name another folder with --out"
            )
        try:
            yield
        finally:
            # Only ours: whoever comes after a folder was removed has a lock of their own.
            if _is_still(path, file):
                path.unlink()
            # A folder in which nothing came to be.
            with suppress(OSError):
                folder.rmdir()


def _opened(path: Path) -> IO[str]:
    """Open a file in a folder that whoever leaves it may remove at the same time."""
    for _ in range(_TRIES):
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            return path.open("w")
    return path.open("w")


def _is_taken(file: IO[str]) -> bool:
    """Take the lock; somebody who only looks whether there is one is waited for."""
    for _ in range(_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_MOMENT)
        else:
            return True
    return False


def _is_still(path: Path, file: IO[str]) -> bool:
    """Tell whether a path still leads to an open file; it may have been removed since."""
    try:
        return path.stat().st_ino == os.fstat(file.fileno()).st_ino
    except OSError:
        return False


def is_locked(folder: Path) -> bool:
    """Tell whether a process keeps a folder to itself right now."""
    try:
        with (folder / ".lock").open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (FileNotFoundError, NotADirectoryError):
        return False
    return False


def remove_leftovers(folder: Path) -> None:
    """Remove what writers that were killed have left below a folder which no other one uses."""
    for path in list(folder.rglob(".*")):
        if _LEFTOVER.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


def remove_abandoned(path: Path) -> None:
    """Remove what processes that are gone have left beside a path that they did not finish."""
    if not path.parent.is_dir():
        return
    for each in path.parent.iterdir():
        found = _LEFTOVER.fullmatch(each.name)
        if found and each.name.startswith(f".{path.name}") and not _is_alive(int(found[1])):
            shutil.rmtree(each) if each.is_dir() else each.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


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
