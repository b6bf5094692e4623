"""Images that stay on disk until they are asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, UInt8
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from cicf.core import DataError


@dataclass(frozen=True, slots=True)
class ImageFiles:
    """Is a sequence of images given by their files, each decoded when it is asked for."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> UInt8[Tensor, "3 height width"]:
        return read_image(self.paths[index])

    def take(self, places: Int[Tensor, " m"]) -> "ImageFiles":
        """Return the images at these places."""
        return ImageFiles(tuple(self.paths[place] for place in places.tolist()))


def read_image(path: Path) -> UInt8[Tensor, "3 height width"]:
    """Return an image as RGB, whatever its bytes are; its name's ending is not believed."""
    try:
        with Image.open(path) as image:
            pixels = np.array(image.convert("RGB"))
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise DataError(
            f"{path} cannot be read as an image ({error}); remove it, or pass --skip-unreadable"
        ) from error
    return torch.from_numpy(pixels).permute(2, 0, 1)


def unreadable_images(paths: Sequence[Path]) -> list[Path]:
    """Return those of the files that do not decode to their end."""
    bad = []
    for path in paths:
        try:
            read_image(path)
        except DataError:
            bad.append(path)
    return bad
