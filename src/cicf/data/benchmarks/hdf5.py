"""Benchmarks in HDF5 files, as the authors of PACS gave them out for MLDG and Epi-FCR.

There is a file for each domain and part, such as `art_painting_train.hdf5`, with `images` of shape
(n, height, width, 3) and `labels` of shape (n,): places in the alphabetical list of classes,
counted from 1.

The channels are blue, green, red: the authors' own reader (Epi-FCR) turns them round before it
takes off the RGB means of ImageNet. Others read the same files as RGB, and files made by others
may be RGB. So the images decide: in PACS, red exceeds blue in 79 to 86 % of the images of a domain
with colours, by 17 to 28 of 255 levels on average.
"""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from cicf.core import DataError
from cicf.data.benchmarks.entries import Entry, Found
from cicf.data.benchmarks.extras import needs_extra_data
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.domains import Part

if TYPE_CHECKING:
    import h5py

PART_WORDS: dict[str, Part | None] = {
    "train": "train",
    "val": "validation",
    "validation": "validation",
    "crossval": "validation",
    "test": "test",
    "all": None,
    "full": None,
}
"""How the parts of a split are called at the end of a file's name; None is all images."""
BLOCK = 32
"""How many images are read at a time; 40 MB where they are 227 x 227 in double precision."""
SAMPLED = 256
"""How many images of a file tell the order of its channels."""


def read_hdf5(benchmark: Benchmark, paths: Sequence[Path]) -> Found:
    """Return what HDF5 files hold together, every image once.

    What the labels are counted from, and the order of the channels, is found from all of them.
    """
    files, problems = [], []
    for path in paths:
        domain, part = _named(benchmark, path)
        if domain is None:
            problems.append(
                f"{path.name} names no domain of {benchmark.title}, which are "
                f"{', '.join(benchmark.domains)}; it was left out"
            )
            continue
        files.append(_surveyed(path, domain, part))
    if not files:
        return Found("HDF5 files", (), (), tuple(problems))
    base = _base_of_labels(benchmark, files)
    is_bgr, colours = _order_of_channels(files)
    chosen, notes = _chosen(benchmark, files)
    entries = (
        entry for file, part in chosen for entry in _entries(benchmark, file, part, base, is_bgr)
    )
    notes = [f"labels are counted from {base}", colours, *notes]
    return Found("HDF5 files", tuple(entries), tuple(notes), tuple(problems))


@dataclass(frozen=True, eq=False, slots=True)
class _File:
    """Holds what is known of an HDF5 file without most of its images."""

    path: Path
    domain: str
    part: Part | None
    labels: np.ndarray
    scale: float
    """What the values are multiplied by to span 0 to 255."""
    redder: np.ndarray
    """By how much the first channel exceeds the last, of some images; those without are left out"""


def _named(benchmark: Benchmark, path: Path) -> tuple[str | None, Part | None]:
    """Return the domain and the part that a file is named after."""
    domain, _, word = path.stem.rpartition("_")
    if domain and word.lower() in PART_WORDS:
        return benchmark.domain(domain), PART_WORDS[word.lower()]
    return benchmark.domain(path.stem), None


@contextmanager
def _opened(path: Path) -> "Iterator[h5py.File]":
    try:
        import h5py
    except ImportError as error:
        raise needs_extra_data(str(path)) from error
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise DataError(f"{path} cannot be read as HDF5 ({error}); get it again") from error
    with file:
        try:
            yield file
        except OSError as error:
            raise DataError(f"{path} is damaged ({error}); get it again") from error


def _surveyed(path: Path, domain: str, part: Part | None) -> _File:
    with _opened(path) as file:
        for key in ("images", "labels"):
            if not hasattr(file.get(key), "shape"):
                raise DataError(
                    f"{path} has no array {key!r} but {', '.join(map(repr, file)) or 'nothing'}; "
                    "it must hold 'images' and 'labels'"
                )
        images, labels = file["images"], np.asarray(file["labels"])
        is_known = images.dtype == np.uint8 or images.dtype.kind == "f"
        if images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:] or not is_known:
            raise DataError(
                f"the images of {path} are {images.dtype} of shape {images.shape}; they must be "
                "uint8 or float of shape (n, height, width, 3)"
            )
        is_whole = labels.dtype.kind in "iuf" and np.array_equal(labels, np.rint(labels))
        if labels.shape != images.shape[:1] or not is_whole:
            raise DataError(
                f"the labels of {path} are {labels.dtype} of shape {labels.shape}; they must be "
                f"one whole number for each of the {images.shape[0]} images"
            )
        scale = 1.0 if images.dtype == np.uint8 else _scale(path, images)
        return _File(path, domain, part, labels.astype(np.int64), scale, _redder(images))


def _scale(path: Path, images: "h5py.Dataset") -> float:
    """Return 255 for values from 0 to 1, and 1 for values from 0 to 255."""
    low, high = 0.0, 0.0
    for start in range(0, images.shape[0], BLOCK):
        block = np.asarray(images[start : start + BLOCK])
        low, high = min(low, float(block.min())), max(high, float(block.max()))
        if not np.isfinite(block).all() or low < 0 or high > 255:
            raise DataError(
                f"the images of {path} have values from {low:g} to {high:g}, or none at all; they "
                "must span 0 to 1 or 0 to 255"
            )
    return 255.0 if high <= 1 else 1.0


def _redder(images: "h5py.Dataset") -> np.ndarray:
    step = max(1, images.shape[0] // SAMPLED)
    means = [
        np.asarray(images[row], dtype=np.float64).mean(axis=(0, 1))
        for row in range(0, images.shape[0], step)
    ]
    return np.array([mean[0] - mean[2] for mean in means if mean[0] != mean[2]])


def _base_of_labels(benchmark: Benchmark, files: Sequence[_File]) -> int:
    """Return what the labels are counted from, by all files together: one may lack a class."""
    labels = np.concatenate([file.labels for file in files])
    if not len(labels):
        raise DataError(f"{files[0].path} and the files beside it hold no image; get them again")
    low, high, count = int(labels.min()), int(labels.max()), len(benchmark.classes)
    if low == 0 and high < count:
        return 0
    if low > 0 and high == count:
        return 1
    raise DataError(
        f"the labels beside {files[0].path} span {low} to {high}, which {benchmark.title} with "
        f"its {count} classes counts neither from 0 nor from 1; get the files of all domains"
    )


def _order_of_channels(files: Sequence[_File]) -> tuple[bool, str]:
    """Tell whether blue comes first, and why; without a clear answer it is the authors' order."""
    redder = np.concatenate([file.redder for file in files])
    mean = float(redder.mean()) if len(redder) else 0.0
    error = float(redder.std() / np.sqrt(len(redder))) if len(redder) else 0.0
    if mean > 3 * error:
        return False, f"channels are red, green, blue, by the colours of {len(redder)} images"
    if mean < -3 * error:
        return True, f"channels are blue, green, red, by the colours of {len(redder)} images"
    return True, "channels are taken as blue, green, red, the authors' order; colours do not tell"


def _chosen(
    benchmark: Benchmark, files: Sequence[_File]
) -> tuple[list[tuple[_File, Part | None]], list[str]]:
    """Return the files that hold every image once, each with its part, and what was left out."""
    chosen: list[tuple[_File, Part | None]] = []
    notes = []
    for domain in benchmark.domains:
        by_part: dict[Part | None, _File] = {}
        for file in files:
            # Where the official split has no test part, a file called test holds all images.
            is_all = file.part == "test" and "test" not in benchmark.parts.get(domain, {})
            part = None if is_all else file.part
            if file.domain == domain and part in by_part:
                raise DataError(
                    f"{by_part[part].path} and {file.path} are both the same part of {domain}; "
                    "keep one of them"
                )
            if file.domain == domain:
                by_part[part] = file
        found, note = _without_repeats(by_part)
        chosen += found
        notes += note
    return chosen, notes


def _without_repeats(
    by_part: dict[Part | None, _File],
) -> tuple[list[tuple[_File, Part | None]], list[str]]:
    whole = by_part.pop(None, None)
    parts: list[tuple[_File, Part | None]] = [
        (by_part[part], part) for part in ("train", "validation", "test") if part in by_part
    ]
    if whole is None:
        return parts, []
    if not {"train", "validation"} <= by_part.keys():
        left_out = ", ".join(file.path.name for file, _ in parts)
        note = f"{whole.path.name} is taken as all images, so {left_out} was left out"
        return [(whole, None)], [note] if parts else []
    if len(whole.labels) == sum(len(file.labels) for file, _ in parts):
        return parts, [f"{whole.path.name} repeats train and val and was left out"]
    return [*parts, (whole, "test")], []


def _entries(
    benchmark: Benchmark, file: _File, part: Part | None, base: int, is_bgr: bool
) -> Iterator[Entry]:
    blocks = _Blocks(file.path, scale=file.scale, is_bgr=is_bgr)
    for row, label in enumerate(file.labels):
        name = f"{file.domain}_{part or 'all'}_{row:05d}.png"
        yield Entry(file.domain, benchmark.classes[label - base], name, part, RowBytes(blocks, row))


class _Blocks:
    """Reads images of an HDF5 file in blocks and keeps the last one, as rows are asked in order."""

    def __init__(self, path: Path, *, scale: float, is_bgr: bool) -> None:
        self.path, self.scale, self.is_bgr = path, scale, is_bgr
        self.start, self.block = -1, np.empty(0)

    def image(self, row: int) -> np.ndarray:
        """Return an image as RGB of eight bits."""
        start = row - row % BLOCK
        if start != self.start:
            with _opened(self.path) as file:
                self.block = np.asarray(file["images"][start : start + BLOCK])
            self.start = start
        pixels: np.ndarray = np.rint(self.block[row - start] * self.scale).astype(np.uint8)
        return np.ascontiguousarray(pixels[..., ::-1]) if self.is_bgr else pixels


@dataclass(frozen=True, slots=True)
class RowBytes:
    """Is an image in a row of an HDF5 file."""

    blocks: _Blocks
    row: int

    def read(self) -> bytes:
        """Return the image as PNG, which loses nothing."""
        written = io.BytesIO()
        Image.fromarray(self.blocks.image(self.row)).save(written, format="PNG")
        return written.getvalue()
