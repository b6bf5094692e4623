"""Views of images in files: written once, checked when they are opened, mapped into memory.

A shelf is a folder for one view. Whenever images are added it gets a folder with `pixels`, image
after image, and `index.npz`, which says whose they are and what they add up to.
"""

import shutil
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from cicf.data.views import View

ABSENT = -1
"""The number of the addition that an image is in, where it is in none."""
AS_CENTRE = -2
"""The number where the view is the same as the centre: the image is a square."""
_BLOCK = 1 << 24
_DAMAGE = (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error)


class Pixels:
    """Is the images of one addition, on disk."""

    def __init__(self, path: Path, shape: tuple[int, int, int, int]) -> None:
        self._path, self._shape = path, shape
        # An empty file cannot be mapped.
        self._mapped = (
            np.memmap(path, dtype=np.uint8, mode="r", shape=shape)
            if shape[0]
            else np.empty(shape, dtype=np.uint8)
        )

    def __reduce__(self) -> tuple[object, ...]:
        # For workers that are not forked: they map the file, too, instead of getting a copy.
        return Pixels, (self._path, self._shape)

    def __getitem__(self, rows: Int[np.ndarray, " m"]) -> UInt8[np.ndarray, "m 3 s s"]:
        return np.asarray(self._mapped[rows])


class Addition(NamedTuple):
    """Holds the images that were added at one time; a row below 0 says where else the image is."""

    places: Int[np.ndarray, " m"]
    rows: Int[np.ndarray, " m"]
    pixels: Pixels


@dataclass
class Shelf:
    """Holds all that is there of one view."""

    number: Int[np.ndarray, " n"]
    row: Int[np.ndarray, " n"]
    additions: dict[Path, Addition] = field(default_factory=dict)
    pixels: list[Pixels] = field(default_factory=list)
    damaged: list[Path] = field(default_factory=list)


def open_shelf(folder: Path, view: View, *, count: int, before: Shelf | None) -> Shelf:
    """Return what is there for the images of a data set; what was opened before is not checked."""
    shelf = Shelf(np.full(count, ABSENT), np.zeros(count, dtype=np.int64))
    known = {} if before is None else before.additions
    for path in sorted(folder.glob("[!.]*")):
        try:
            found = known.get(path) or _opened(path, view, count)
        except _DAMAGE:
            shelf.damaged.append(path)
            continue
        shelf.additions[path] = found
        shelf.number[found.places] = np.where(found.rows < 0, found.rows, len(shelf.pixels))
        shelf.row[found.places] = found.rows
        shelf.pixels.append(found.pixels)
    return shelf


def remove_damaged(shelf: Shelf) -> None:
    """Remove what cannot be used; only for whoever is about to write the images anew."""
    for path in shelf.damaged:
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)


class Writer:
    """Writes the images of one addition into a folder that nobody else knows yet."""

    def __init__(self, pixels: BinaryIO, index: Path) -> None:
        self._pixels, self._index = pixels, index
        self._places: list[int] = []
        self._rows: list[int] = []
        self._num_rows, self._sum = 0, 0

    def write(self, place: int, image: UInt8[np.ndarray, "3 s s"] | None) -> None:
        """Add an image; None where it is the same as its centre."""
        self._places.append(place)
        self._rows.append(AS_CENTRE if image is None else self._num_rows)
        if image is not None:
            content = image.tobytes()
            self._pixels.write(content)
            self._sum = zlib.crc32(content, self._sum)
            self._num_rows += 1

    def close(self) -> None:
        """Write down what is in it."""
        np.savez(
            self._index,
            places=np.array(self._places, dtype=np.int64),
            rows=np.array(self._rows, dtype=np.int64),
            sum=np.array(self._sum, dtype=np.int64),
        )


def images_in(folder: Path) -> int:
    """Return how many images a shelf is said to hold."""
    total = 0
    for path in folder.glob("[!.]*/index.npz"):
        with suppress(*_DAMAGE), path.open("rb") as stream, np.load(stream) as index:
            total += len(index["places"])
    return total


def _opened(path: Path, view: View, count: int) -> Addition:
    with (path / "index.npz").open("rb") as stream, np.load(stream) as index:
        places, rows, expected = index["places"], index["rows"], int(index["sum"])
    file, num_rows = path / "pixels", int((rows >= 0).sum())
    if file.stat().st_size != num_rows * view.bytes or len(places) != len(rows):
        raise ValueError("it is shorter or longer than it says")
    if len(places) and not 0 <= places.min() <= places.max() < count:
        raise ValueError("it is about images that there are not")
    if _sum(file) != expected:
        raise ValueError("its bytes are not those that were written")
    return Addition(places, rows, Pixels(file, (num_rows, 3, view.size, view.size)))


def _sum(file: Path) -> int:
    found = 0
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            found = zlib.crc32(block, found)
    return found
