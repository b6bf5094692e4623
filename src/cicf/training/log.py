"""The numbers of a run, a line for each row."""

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cicf.core import ConfigError, DataError

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

Row = Mapping[str, object]


class MetricsLog:
    """Appends rows to a file; after an interruption, what lies behind `position` is dropped.

    Nothing in it depends on time or machine, so that a resumed run leaves the same file.
    """

    def __init__(self, path: Path, *, position: int, board: "SummaryWriter | None") -> None:
        self._file = path.open("ab")
        if self._file.tell() < position:
            raise DataError(
                f"{path} is shorter than when the checkpoint was written; bring it back, or start "
                "anew in another folder"
            )
        self._file.truncate(position)
        self._board = board

    def write(self, row: Row) -> None:
        """Append a row; a number that is not finite is written as null."""
        self._file.write(json.dumps(_finite(dict(row))).encode() + b"\n")
        self._file.flush()
        if self._board is not None:
            for name, value in _numbers(row):
                self._board.add_scalar(name, value, row["step"])

    def position(self) -> int:
        """Return the length of the file, once all of it is on the disk."""
        os.fsync(self._file.fileno())
        return self._file.seek(0, os.SEEK_END)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        if self._board is not None:
            self._board.close()


def open_board(folder: Path, *, step: int) -> "SummaryWriter":
    """Return a writer for TensorBoard that overwrites what lies behind a step."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise ConfigError(
            "machine.tensorboard=true needs TensorBoard; install it with: "
            "pip install 'cicf[tensorboard]'"
        ) from error
    return SummaryWriter(str(folder), purge_step=step)


def _numbers(row: Row, prefix: str = "") -> Iterator[tuple[str, float]]:
    for name, value in row.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{prefix}{name}/")
        elif isinstance(value, int | float) and name not in ("step", "epoch"):
            yield f"{prefix}{name}", float(value)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
