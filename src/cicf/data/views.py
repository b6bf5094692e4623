"""Images of any shape as squares of one size, in whole numbers."""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import UInt8
from torch import Tensor


class View(NamedTuple):
    """Is one way to make a square of an image: `squeezed` keeps all of it, `centre` its shape."""

    kind: Literal["squeezed", "centre"]
    size: int

    def of(self, images: UInt8[Tensor, "n 3 h w"]) -> UInt8[Tensor, "n 3 s s"]:
        """Return these images as squares; each is what it would be alone, to the bit."""
        if self.kind == "squeezed":
            return _resized(images, self.size, self.size)
        height, width = images.shape[2:]
        scale = self.size / min(height, width)
        sides = max(self.size, round(height * scale)), max(self.size, round(width * scale))
        images = _resized(images, *sides)
        top, left = (sides[0] - self.size) // 2, (sides[1] - self.size) // 2
        return images[:, :, top : top + self.size, left : left + self.size]

    @property
    def bytes(self) -> int:
        """Return what one image takes."""
        return 3 * self.size**2


def _resized(images: UInt8[Tensor, "n 3 h w"], height: int, width: int) -> UInt8[Tensor, "n 3 r s"]:
    if images.shape[2:] == (height, width):
        return images
    found = F.interpolate(
        images.float(), (height, width), mode="bilinear", antialias=True, align_corners=False
    )
    return found.round_().clamp_(0, 255).to(torch.uint8)
