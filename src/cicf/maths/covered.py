"""Convolution of images so small that the kernel covers each wherever it stands.

Then a convolution is a few matrix products, without the taps that would only meet padding: 16 of 36
for an image of 2x2 under a padded kernel of 3x3. Channels are last in all tensors, so that a row of
the image lies in one stretch, as do the taps that stand on it, and nothing is copied.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Block(NamedTuple):
    """Says which taps stand on a row of the image when the kernel is at a place."""

    place: int
    row: int
    tap_row: int
    numbers: slice
    """Which numbers of that row of the kernel: its taps on the pixels, by channels."""


def is_covered(
    image: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> bool:
    """Tell whether every tap that an image has to do with lies within the kernel, in all places."""
    return all(
        (size + 2 * pad - taps) // step * step <= pad and size - 1 + pad <= taps - 1
        for size, taps, step, pad in zip(image, kernel, stride, padding, strict=True)
    )


def blocks_of(
    x: Tensor, places: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int]
) -> list[Block]:
    """Return which taps stand on each row of an image, for all places of the kernel."""
    _, channels, height, width = x.shape
    found = []
    for down, right, row in product(range(places[0]), range(places[1]), range(height)):
        first = channels * (padding[1] - stride[1] * right)
        numbers = slice(first, first + channels * width)
        tap_row = row + padding[0] - stride[0] * down
        found.append(Block(down * places[1] + right, row, tap_row, numbers))
    return found


def value(
    x: Tensor, kernel: Tensor, bias: Tensor | None, blocks: Sequence[Block]
) -> Float[Tensor, "n places o"]:
    """Return the convolution."""
    shape = len(x), 1 + blocks[-1].place, len(kernel)
    found = x.new_zeros(shape) if bias is None else bias.expand(shape).contiguous()
    rows, taps = _lines(x), _lines(kernel)
    for place, row, tap_row, numbers in blocks:
        found[:, place].addmm_(rows[:, row], taps[:, tap_row, numbers].t())
    return found


def for_image(
    slope: Tensor, x: Tensor, kernel: Tensor, blocks: Sequence[Block]
) -> Float[Tensor, "n pixels c"]:
    """Return the gradient for the image."""
    slopes, taps = _places(slope), _lines(kernel)
    found = torch.zeros_like(_lines(x))
    for place, row, tap_row, numbers in blocks:
        found[:, row].addmm_(slopes[:, place], taps[:, tap_row, numbers])
    return found.view(len(x), -1, x.shape[1])


def for_kernel(
    slope: Tensor, x: Tensor, kernel: Tensor, blocks: Sequence[Block]
) -> Float[Tensor, "o taps c"]:
    """Return the gradient for the kernel: each tap gathers what it met in all places."""
    slopes, rows = _places(slope), _lines(x)
    found = torch.zeros_like(_lines(kernel))
    for place, row, tap_row, numbers in blocks:
        found[:, tap_row, numbers].addmm_(slopes[:, place].t(), rows[:, row])
    return found.view(len(kernel), -1, x.shape[1])


def _lines(images: Tensor) -> Float[Tensor, "n rows numbers"]:
    return images.permute(0, 2, 3, 1).flatten(2)


def _places(slope: Tensor) -> Float[Tensor, "n places o"]:
    return slope.permute(0, 2, 3, 1).flatten(1, 2)
