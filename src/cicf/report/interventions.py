"""Interventions that leave the object in an image alone, each at three strengths, weakest first.

They act on the image as it is stored, before the network's own preparation, and draw nothing at
random. Lengths are shares of the image's short side, so that images of any size are treated alike.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
from jaxtyping import Bool, Float, UInt8
from PIL import Image
from torch import Tensor

from cicf.core.torchvision_cpu import torchvision

Pixels = UInt8[Tensor, "3 h w"]
Mask = Bool[Tensor, "h w"]


@dataclass(frozen=True, slots=True)
class Intervention:
    """Is a change of everything but the object; `levels` are its strengths, in its own unit."""

    name: str
    levels: tuple[float, ...]
    meaning: str
    apply: Callable[[Pixels, float, Mask | None], Pixels]
    needs_mask: bool = False


def interventions() -> tuple[Intervention, ...]:
    """Return all of them, in the order of tables."""
    return (
        Intervention("warm cast", (0.1, 0.25, 0.5), "red more, blue less by this share", _warm),
        Intervention("cool cast", (0.1, 0.25, 0.5), "blue more, red less by this share", _cool),
        Intervention("darker", (0.8, 0.6, 0.4), "brightness times this", _brightness),
        Intervention("brighter", (1.2, 1.5, 2.0), "brightness times this", _brightness),
        Intervention("contrast", (0.75, 0.5, 0.25), "contrast times this", _contrast),
        Intervention("grey", (0.5, 0.8, 1.0), "this share of the colour is lost", _grey),
        Intervention("blur", (0.015, 0.03, 0.06), "deviation, as a share of the side", _blur),
        Intervention("jpeg", (50.0, 20.0, 5.0), "quality", _jpeg),
        Intervention(
            "border", (0.03, 0.06, 0.12), "width of the frame, share of the side", _border
        ),
        Intervention(
            *("background", (0.25, 0.5, 1.0), "this share of another colour", _background),
            needs_mask=True,
        ),
    )


def _warm(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    return _gained(image, (1 + level, 1.0, 1 - level))


def _cool(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    return _gained(image, (1 - level, 1.0, 1 + level))


def _gained(image: Pixels, gains: tuple[float, float, float]) -> Pixels:
    return _whole(image * torch.tensor(gains)[:, None, None])


def _brightness(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    found: Pixels = _ops().adjust_brightness(image, level)
    return found


def _contrast(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    found: Pixels = _ops().adjust_contrast(image, level)
    return found


def _grey(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    found: Pixels = _ops().adjust_saturation(image, 1 - level)
    return found


def _blur(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    short = min(image.shape[1:])
    sigma = level * short
    # Reflected at the border, which must be wider than the half of the kernel.
    half = min(max(1, math.ceil(3 * sigma)), short - 1)
    if half == 0:
        return image
    found: Pixels = _ops().gaussian_blur(image, [2 * half + 1] * 2, [sigma] * 2)
    return found


def _jpeg(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    del mask
    file = io.BytesIO()
    # By Pillow, because torchvision's own needs operators that not every build has.
    Image.fromarray(image.permute(1, 2, 0).numpy()).save(file, "JPEG", quality=int(level))
    return torch.from_numpy(np.array(Image.open(file))).permute(2, 0, 1)


def _border(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    """Return the image in a frame of another colour; a known object stays before it."""
    height, width = image.shape[1:]
    wide = max(1, round(level * min(height, width)))
    is_frame = torch.ones(height, width, dtype=torch.bool)
    is_frame[wide : height - wide, wide : width - wide] = False
    if mask is not None:
        is_frame &= ~mask
    return _mixed(image, is_frame, 1.0)


def _background(image: Pixels, level: float, mask: Mask | None) -> Pixels:
    assert mask is not None
    return _mixed(image, ~mask, level)


def _mixed(image: Pixels, where: Mask, level: float) -> Pixels:
    """Return the image with a share of another colour there: the one farthest from its mean."""
    if not bool(where.any()):
        return image
    mean = image[:, where].double().mean(dim=1)
    far = torch.where(mean < 127.5, 255.0, 0.0)[:, None, None]
    return torch.where(where, _whole(image * (1 - level) + far * level), image)


def _whole(pixels: Float[Tensor, "3 h w"]) -> Pixels:
    return pixels.round().clamp(0, 255).to(torch.uint8)


def _ops() -> ModuleType:
    return torchvision("transforms.v2.functional")
