"""Decoded images that outlive a run: views of a data set, made once and mapped into memory.

A folder is named by the fingerprint of the data, so that it never speaks of other images.
"""

import fcntl
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from cicf.core.files import new_folder, remove_leftovers
from cicf.data.images import ImageFiles, Store
from cicf.data.shelves import (
    AS_CENTRE,
    Shelf,
    Writer,
    images_in,
    open_shelf,
    remove_damaged,
)
from cicf.data.views import View

_log = logging.getLogger(__name__)
VERSION = "v1"
"""The format; what lies in a folder of another name is not looked at."""
SHARE = 0.25
"""The part of the free disk space that images may be added up to."""
AT_ONCE = 128
"""Images that are decoded between two words about it."""
_THREADS = min(4, os.cpu_count() or 1)
_CHECKED = "decodes"


class Wanted(NamedTuple):
    """Says which images are to be added, and as what."""

    images: ImageFiles
    views: Sequence[View]


class Progress(NamedTuple):
    """Says how many images have been decoded, of those that are to be added."""

    done: int
    total: int


class Kept(NamedTuple):
    """Says what a folder of the cache holds."""

    path: Path
    images: int
    bytes: int


class Cache(Store):
    """Holds views of the images of one data set, by their places in it.

    Where nothing can be written, or there is no room, images are not in it, and are decoded anew
    whenever they are asked for; a sentence in the log says so.
    """

    def __init__(self, root: Path, fingerprint: str, *, count: int) -> None:
        self._folder, self._count = root / VERSION / fingerprint, count
        self._shelves: dict[View, Shelf] = {}

    @property
    def is_checked(self) -> bool:
        """Tell whether all images of this fingerprint were found to decode to their end."""
        return (self._folder / _CHECKED).exists()

    def mark_checked(self) -> None:
        """Remember that they do."""
        # Where that is not possible they are looked at again another time.
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            (self._folder / _CHECKED).touch()

    def open(self, views: Sequence[View]) -> None:
        """Look at what is there of these views, and leave damaged parts aside."""
        for view in views:
            self._shelves[view] = open_shelf(
                self._folder / _name(view),
                view,
                count=self._count,
                before=self._shelves.get(view),
            )

    def gather(
        self, view: View, places: Int[Tensor, " m"]
    ) -> tuple[UInt8[Tensor, "m 3 s s"], Bool[Tensor, " m"]]:
        """Return room for the images at these places, and which of them are in it already."""
        found = np.empty((len(places), 3, view.size, view.size), dtype=np.uint8)
        is_there = self._gather(view, places.numpy(), found)
        return torch.from_numpy(found), torch.from_numpy(is_there)

    def add(self, wanted: Sequence[Wanted]) -> Iterator[Progress]:
        """Decode what is wanted and not there, each image once, telling of it now and then.

        Another process that adds to the same folder is waited for. What was added is there when all
        of it is.
        """
        views = list(dict.fromkeys(view for each in wanted for view in each.views))
        self.open(views)
        missing = self._missing(wanted)
        if not missing:
            return
        yield Progress(0, len(missing))
        try:
            yield from self._added(wanted, views)
        except OSError as error:
            _log.warning(
                "decoded images are not kept: %s; free or name another folder by "
                "machine.cache_folder, or set machine.cache='off'",
                error,
            )
            self.open(views)

    def _added(self, wanted: Sequence[Wanted], views: Sequence[View]) -> Iterator[Progress]:
        self._folder.mkdir(parents=True, exist_ok=True)
        with _locked(self._folder / ".lock"):
            remove_leftovers(self._folder)
            self.open(views)
            missing = self._missing(wanted)
            if not missing or not _has_room(self._folder, missing):
                return
            for view in views:
                remove_damaged(self._shelves[view])
            with ExitStack() as stack:
                needed = {view for each in missing for view in each.views}
                writers = {view: self._writer(view, stack) for view in needed}
                yield from _written(missing, writers)
        self.open(views)

    def _writer(self, view: View, stack: ExitStack) -> Writer:
        # Each addition has a name of its own: whoever reads an older one is not disturbed.
        path = self._folder / _name(view) / secrets.token_hex(8)
        folder = stack.enter_context(new_folder(path))
        return Writer(stack.enter_context((folder / "pixels").open("wb")), folder / "index.npz")

    def _missing(self, wanted: Sequence[Wanted]) -> list["_Missing"]:
        found = []
        for images, views in wanted:
            assert images.places is not None
            places = images.places.numpy()
            absent = {view: ~self._holds(view, places) for view in views}
            centres = frozenset(view.size for view in views if view.kind == "centre")
            for index in np.flatnonzero(np.logical_or.reduce(list(absent.values()))).tolist():
                own = tuple(view for view in views if absent[view][index])
                found.append(_Missing(images, index, int(places[index]), own, centres))
        return found

    def _holds(self, view: View, places: np.ndarray) -> np.ndarray:
        number = self._shelves[view].number[places]
        holds: np.ndarray = number >= 0
        if (number == AS_CENTRE).any():
            holds |= (number == AS_CENTRE) & self._holds(View("centre", view.size), places)
        return holds

    def _gather(self, view: View, places: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Fill in the images that are there, and return which are."""
        shelf = self._shelves.get(view)
        if shelf is None:
            return np.zeros(len(places), dtype=bool)
        numbers, rows = shelf.number[places], shelf.row[places]
        for number in np.unique(numbers[numbers >= 0]).tolist():
            here = np.flatnonzero(numbers == number)
            found[here] = shelf.pixels[number][rows[here]]
        is_there: np.ndarray = numbers >= 0
        same = np.flatnonzero(numbers == AS_CENTRE)
        if len(same):
            room = np.empty((len(same), *found.shape[1:]), dtype=np.uint8)
            is_there[same] = self._gather(View("centre", view.size), places[same], room)
            found[same] = room
        return is_there


def kept(root: Path) -> list[Kept]:
    """Return what lies in the cache, the oldest first."""
    folders = [each for each in (root / VERSION).glob("*/") if each.is_dir()]
    folders.sort(key=lambda folder: folder.stat().st_mtime)
    return [Kept(folder, _most_images(folder), _size(folder)) for folder in folders]


def clear(root: Path) -> None:
    """Remove all decoded images; runs that use them keep what they have opened."""
    shutil.rmtree(root / VERSION, ignore_errors=True)


def default_root() -> Path:
    """Return the folder for decoded images: what the environment says, or the user's cache."""
    own = os.environ.get("CICF_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "cicf"


class _Missing(NamedTuple):
    """Is an image that is to be added: where to read it, its place, and as what."""

    images: ImageFiles
    position: int
    place: int
    views: tuple[View, ...]
    centres: frozenset[int]
    """The sizes at which its centre is there, or will be."""


def _written(missing: Sequence[_Missing], writers: dict[View, Writer]) -> Iterator[Progress]:
    with ThreadPoolExecutor(_THREADS) as pool:
        for start in range(0, len(missing), AT_ONCE):
            some = missing[start : start + AT_ONCE]
            for each, made in zip(some, pool.map(_made, some), strict=True):
                for view, pixels in made.items():
                    writers[view].write(each.place, pixels)
            yield Progress(start + len(some), len(missing))
    for writer in writers.values():
        writer.close()


def _made(missing: _Missing) -> dict[View, UInt8[np.ndarray, "3 s s"] | None]:
    """Return the views of an image, decoded once; None for what is the same as the centre."""
    image = missing.images[missing.position][None]
    is_square = image.shape[2] == image.shape[3]
    return {
        view: None
        if is_square and view.kind == "squeezed" and view.size in missing.centres
        else view.of(image)[0].numpy()
        for view in missing.views
    }


def _has_room(folder: Path, missing: Sequence[_Missing]) -> bool:
    size = sum(view.bytes for each in missing for view in each.views)
    free = shutil.disk_usage(folder).free
    if size <= SHARE * free:
        return True
    _log.warning(
        "%d decoded images are not kept, because they would take %.1f GB and %.1f GB are free in "
        "%s; free more, name another folder by machine.cache_folder, or set machine.cache='off'",
        len(missing),
        size / 1e9,
        free / 1e9,
        folder,
    )
    return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep others from adding at the same time; the lock of a killed process is gone with it."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _name(view: View) -> str:
    return f"{view.kind}-{view.size}"


def _most_images(folder: Path) -> int:
    return max((images_in(shelf) for shelf in folder.iterdir() if shelf.is_dir()), default=0)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
