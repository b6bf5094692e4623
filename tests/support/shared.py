"""What takes long to make and is made once, whichever of the processes that test needs it first."""

import fcntl
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Made = TypeVar("Made")


def once(path: Path, make: Callable[[], Made]) -> Made:
    """Return what `make` returns, called by one process and read from a file by the others."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            path.write_bytes(pickle.dumps(make()))
        made: Made = pickle.loads(path.read_bytes())
    return made
