"""Convolution with a kernel that stands in few places, as on the small maps of a deep network.

Then it is a few matrix products, without the taps that would only meet padding: 16 of 36 for an
image of 2x2 under a padded kernel of 3x3. Channels are last in all tensors, so that pixels of a row
lie in one stretch, as do the taps that stand on them, and nothing is copied.
"""

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Block(NamedTuple):
    """Says which taps stand on which pixels of a row when the kernel is at a place."""

    place: int
    row: int
    pixels: slice
    """Numbers of that row of the image: neighbouring pixels, by channels."""
    tap_row: int
    taps: slice
    """Numbers of that row of the kernel: the taps on these pixels, by channels."""


def blocks_of(
    x: Tensor,
    kernel: tuple[int, int],
    places: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> list[Block]:
    """Return the blocks of all places of the kernel."""
    _, channels, height, width = x.shape
    found = []
    for down, right, tap_row in product(range(places[0]), range(places[1]), range(kernel[0])):
        row = down * stride[0] - padding[0] + tap_row
        first = right * stride[1] - padding[1]
        start, stop = max(first, 0), min(first + kernel[1], width)
        if 0 <= row < height and start < stop:
            pixels = slice(channels * start, channels * stop)
            taps = slice(channels * (start - first), channels * (stop - first))
            found.append(Block(down * places[1] + right, row, pixels, tap_row, taps))
    return found


def value(
    x: Tensor, kernel: Tensor, bias: Tensor | None, blocks: Sequence[Block], num_places: int
) -> Float[Tensor, "n places o"]:
    """Return the convolution."""
    shape = len(x), num_places, len(kernel)
    found = x.new_zeros(shape) if bias is None else bias.expand(shape).contiguous()
    rows, lines = _lines(x), _lines(kernel)
    for place, row, pixels, tap_row, taps in blocks:
        found[:, place].addmm_(rows[:, row, pixels], lines[:, tap_row, taps].t())
    return found


def for_image(
    slope: Tensor, x: Tensor, kernel: Tensor, blocks: Sequence[Block]
) -> Float[Tensor, "n pixels c"]:
    """Return the gradient for the image."""
    slopes, lines = _places(slope), _lines(kernel)
    found = torch.zeros_like(_lines(x))
    for place, row, pixels, tap_row, taps in blocks:
        found[:, row, pixels].addmm_(slopes[:, place], lines[:, tap_row, taps])
    return found.view(len(x), -1, x.shape[1])


def add_for_kernel(into: Tensor, slope: Tensor, x: Tensor, blocks: Sequence[Block]) -> None:
    """Add the gradient for the kernel: each tap gathers what it met in all places."""
    slopes, rows, lines = _places(slope), _lines(x), _lines(into)
    for place, row, pixels, tap_row, taps in blocks:
        lines[:, tap_row, taps].addmm_(slopes[:, place].t(), rows[:, row, pixels])


def _lines(images: Tensor) -> Float[Tensor, "n rows numbers"]:
    """Return rows of pixels or taps, a view where channels are last."""
    return images.permute(0, 2, 3, 1).flatten(2)


def _places(slope: Tensor) -> Float[Tensor, "n places o"]:
    return slope.permute(0, 2, 3, 1).flatten(1, 2)
