"""Images that stay on disk until they are asked for."""

import io
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Int, UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from cicf.core import DataError
from cicf.data.views import View

_BROKEN_EXIF = (struct.error, AttributeError, KeyError, TypeError, ValueError, SyntaxError)
_UNREADABLE = (
    *_BROKEN_EXIF,
    UnidentifiedImageError,
    Image.DecompressionBombError,
    OSError,
    EOFError,
    IndexError,
    zlib.error,
)


class Store(ABC):
    """Is where views of images may be found without decoding them."""

    @abstractmethod
    def open(self, views: Sequence[View]) -> None:
        """Look at what is there of these views."""

    @abstractmethod
    def gather(
        self, view: View, places: Int[Tensor, " m"]
    ) -> tuple[UInt8[Tensor, "m 3 s s"], Bool[Tensor, " m"]]:
        """Return room for the images at these places, and which of them are in it already."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageFiles:
    """Is a sequence of images given by their files, each decoded when it is asked for.

    Where a `store` has a view of an image, that is taken instead; `places` are the images' numbers
    in it.
    """

    paths: tuple[Path, ...]
    store: Store | None = None
    places: Int[Tensor, " n"] | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> UInt8[Tensor, "3 height width"]:
        return read_image(self.paths[index])

    def take(self, places: Int[Tensor, " m"]) -> "ImageFiles":
        """Return the images at these places."""
        paths = tuple(self.paths[place] for place in places.tolist())
        return ImageFiles(paths, self.store, None if self.places is None else self.places[places])

    def kept_in(self, store: Store) -> "ImageFiles":
        """Return the same images, which are all that the store is about."""
        return ImageFiles(self.paths, store, torch.arange(len(self.paths)))

    def view(self, view: View, places: Int[Tensor, " m"]) -> UInt8[Tensor, "m 3 s s"]:
        """Return the images at these places as squares, with or without the store the same."""
        if self.store is None or self.places is None:
            found = torch.empty(len(places), 3, view.size, view.size, dtype=torch.uint8)
            is_there = torch.zeros(len(places), dtype=torch.bool)
        else:
            found, is_there = self.store.gather(view, self.places[places])
        for position in (~is_there).nonzero()[:, 0].tolist():
            found[position] = view.of(self[int(places[position])][None])[0]
        return found


def read_image(path: Path) -> UInt8[Tensor, "3 height width"]:
    """Return an image as RGB, upright, whatever its bytes are; its name's ending is not believed.

    Grey values of more than eight bits are scaled to what the image itself spans.
    """
    try:
        return _decoded(path)
    except _UNREADABLE as error:
        raise DataError(f"{path} cannot be read as an image ({error}); remove it") from error


def is_image(content: bytes) -> bool:
    """Tell whether bytes decode to an image, to their end."""
    try:
        _decoded(io.BytesIO(content))
    except _UNREADABLE:
        return False
    return True


def _decoded(file: Path | io.BytesIO) -> UInt8[Tensor, "3 height width"]:
    with Image.open(file) as image:
        upright = _upright(image)
        deep = upright.mode.startswith(("I", "F"))
        pixels = _spread(np.asarray(upright)) if deep else np.array(_rgb(upright))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def _upright(image: Image.Image) -> Image.Image:
    try:
        return ImageOps.exif_transpose(image)
    except _BROKEN_EXIF:
        return image


def _rgb(image: Image.Image) -> Image.Image:
    # By way of RGBA, or a palette with a transparent entry is complained about.
    has_palette = image.mode == "P" and "transparency" in image.info
    return (image.convert("RGBA") if has_palette else image).convert("RGB")


def _spread(grey: np.ndarray) -> np.ndarray:
    """Return grey values as RGB of eight bits, from the darkest to the brightest of them."""
    values = grey.astype(np.float64)
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise ValueError("its grey values are not finite")
    scaled = (values - low) * (255 / (high - low) if high > low else 0)
    return np.repeat(scaled.round().astype(np.uint8)[..., None], 3, axis=2)


def unreadable_images(paths: Sequence[Path]) -> list[Path]:
    """Return those of the files that do not decode to their end."""
    bad = []
    for path in paths:
        try:
            read_image(path)
        except DataError:
            bad.append(path)
    return bad
