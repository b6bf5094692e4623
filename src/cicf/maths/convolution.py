"""Two-dimensional convolution with a second derivative written for speed on a CPU.

torch differentiates a convolution twice by convolving with kernels as large as the image. Here both
derivatives are made of the three products that a convolution has: its value, its gradient for the
image, its gradient for the kernel. All are taken with channels last, which needs no reordering.
"""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from cicf.maths import placed
from cicf.maths.products import has_wide_kernels
from cicf.maths.straight import made
from cicf.maths.unread import blank, is_unread

Images = Float[Tensor, "n _ _ _"]
Kernel = Float[Tensor, "_ _ _ _"]

_COLUMNS = 1 << 20
"""Numbers in the largest matrix of patches: 4 MiB in single precision, which a cache can hold."""

_PLACES = 4
"""Places of a kernel up to which matrix products are faster than what torch does."""

_FEW, _LARGE = 16, 49
"""Channels below which, and taps above which, channels last add up with a larger rounding error."""

_LONG, _MANY = 1024, 64
"""Numbers that are added up for a value, and channels where values are to be fine, from which on
they do so with any kernel of more than one tap: by 1.9 with 64 channels and 9 taps, by 3.4 with 256
and 9. So much rounding turns more ReLUs the other way than torch's does."""


class Geometry(NamedTuple):
    """Says how a kernel moves over an image, each by rows and columns."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    is_fine: bool = False
    """Whether values are rounded as finely as torch's, which takes up to a tenth more time."""

    def places(self, x: Images, kernel: Kernel) -> tuple[int, int]:
        """Return in how many places a kernel without dilation stands, by rows and columns."""
        images, sizes = zip(x.shape[2:], self.padding, strict=True), kernel.shape[2:]
        rows, columns = (
            (side + 2 * pad - taps) // step + 1
            for (side, pad), taps, step in zip(images, sizes, self.stride, strict=True)
        )
        return rows, columns


def convolved(x: Images, kernel: Kernel, bias: Tensor | None, how: Geometry) -> Images:
    """Return the convolution of images with a kernel, which can be differentiated twice."""
    names = id(kernel), id(bias)
    # Converted out here, or the copies would have no part in the graph.
    found: Tensor = _Convolution.apply(channels_last(x), channels_last(kernel), bias, how, names)
    return found


class _Convolution(Function):
    """Is the value; its backward is `_ConvolutionGradient`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        bias: Tensor | None,
        how: Geometry,
        names: tuple[int, int],
    ) -> Tensor:
        ctx.save_for_backward(x, kernel)
        ctx.how, ctx.names = how, names
        return _value(x, kernel, bias, how)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        wanted = ctx.needs_input_grad[:3]
        slope, how = channels_last(slopes[0]), ctx.how
        found = _ConvolutionGradient.apply(slope, *ctx.saved_tensors, how, wanted, ctx.names)
        return *found, None, None


class _ConvolutionGradient(Function):
    """Is the gradient for image, kernel and bias; its backward is the second derivative."""

    @staticmethod
    def forward(
        ctx: Any,
        slope: Tensor,
        x: Tensor,
        kernel: Tensor,
        how: Geometry,
        wanted: tuple[bool, bool, bool],
        names: tuple[int, int],
    ) -> Any:
        ctx.save_for_backward(slope, x, kernel)
        ctx.how, ctx.kernel = how, names[0]
        ctx.set_materialize_grads(False)
        of_kernel, of_bias = map(is_unread, names)
        to_image = for_image(slope, x, kernel, how) if wanted[0] else None
        to_kernel = to_bias = None
        if wanted[1]:
            to_kernel = blank(kernel) if of_kernel else _straight(slope, x, kernel, how, names[0])
        if wanted[2]:
            # By itself, which is faster than by the kernel that could do it along the way.
            to_bias = blank(slope[0, :, 0, 0]) if of_bias else slope.sum((0, 2, 3))
        return to_image, to_kernel, to_bias

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        """Pull directions (a, k, b) for image, kernel and bias back to slope, image and kernel.

        The gradient is linear in the slope and bilinear in slope and kernel, or slope and image:
        ⟨gradient, direction⟩ = ⟨slope, x ∗ k + a ∗ kernel + b⟩.
        """
        slope, x, kernel = ctx.saved_tensors
        image, weight, bias = (None if each is None else channels_last(each) for each in directions)
        needs, how = ctx.needs_input_grad, ctx.how
        to_slope = to_image = to_kernel = None
        if needs[0]:
            to_slope = directional(x, kernel, (image, weight, bias), how)
        if needs[1] and weight is not None:
            to_image = for_image(slope, x, weight, how)
        if needs[2] and image is not None:
            to_kernel = _straight(slope, image, kernel, how, ctx.kernel)
        return to_slope, to_image, to_kernel, None, None, None


def directional(
    x: Images, kernel: Kernel, direction: tuple[Tensor | None, ...], how: Geometry
) -> Images | None:
    """Return how the value changes when image, kernel and bias move in a direction.

    Nothing turns on these numbers, so they are taken as fast as can be.
    """
    image, weight, bias = direction
    if weight is None and image is None:
        # Only where kernel and image are constants, and the bias is not.
        return None if bias is None else _convolution(x, torch.zeros_like(kernel), bias, how)
    if weight is None:
        assert image is not None
        return _convolution(image, kernel, bias, how)
    found = _convolution(x, weight, bias, how)
    return found if image is None else found.add_(_convolution(image, kernel, None, how))


def _value(x: Tensor, kernel: Tensor, bias: Tensor | None, how: Geometry) -> Tensor:
    """Return the convolution, rounded finely: ReLUs and poolings turn on its numbers."""
    channels, taps_of_one = x.shape[1], kernel[0, 0].numel()
    is_long = channels * taps_of_one >= _LONG or (how.is_fine and channels >= _MANY)
    is_coarse = (is_long and taps_of_one > 1) or (channels < _FEW and taps_of_one > _LARGE)
    if is_coarse and _blocks(x, kernel, how) is None:
        x, kernel = x.contiguous(), kernel.contiguous()
    return _convolution(x, kernel, bias, how)


def _convolution(x: Tensor, kernel: Tensor, bias: Tensor | None, how: Geometry) -> Tensor:
    if (blocks := _blocks(x, kernel, how)) is not None:
        places = how.places(x, kernel)
        return _map(placed.value(x, kernel, bias, blocks, math.prod(places)), places)
    found: Tensor = torch.ops.aten.convolution(x, kernel, bias, *how[:3], False, (0, 0), how.groups)
    return channels_last(found)


def for_image(slope: Images, x: Images, kernel: Kernel, how: Geometry) -> Images:
    """Return the gradient for the image."""
    if (blocks := _blocks(x, kernel, how)) is not None:
        return _map(placed.for_image(slope, x, kernel, blocks), _sides(x))
    found: Tensor = torch.ops.aten.convolution_backward(
        slope, x, kernel, None, *how[:3], False, (0, 0), how.groups, (True, False, False)
    )[0]
    return channels_last(found)


def _straight(slope: Tensor, x: Tensor, kernel: Tensor, how: Geometry, name: int) -> Tensor | None:
    """Return the gradient for the kernel, or None where it has gone straight into its sum."""

    def make(into: Tensor | None) -> Tensor:
        if into is None:
            return for_kernel(slope, x, kernel, how)
        blocks = _blocks(x, kernel, how)
        if blocks is None or not into.is_contiguous(memory_format=torch.channels_last):
            return into.add_(for_kernel(slope, x, kernel, how))
        placed.add_for_kernel(into, slope, x, blocks)
        return into

    return made(name, make)


def for_kernel(slope: Images, x: Images, kernel: Kernel, how: Geometry) -> Kernel:
    """Return the gradient for the kernel."""
    if (blocks := _blocks(x, kernel, how)) is not None:
        found = torch.zeros_like(kernel)
        placed.add_for_kernel(found, slope, x, blocks)
        return found
    if _prefers_product(slope, kernel, how):
        return _by_product(slope, x, kernel, how)
    to_kernel: Tensor = torch.ops.aten.convolution_backward(
        slope, x, kernel, None, *how[:3], False, (0, 0), how.groups, (False, True, False)
    )[1]
    return channels_last(to_kernel)


def _blocks(x: Tensor, kernel: Tensor, how: Geometry) -> list[placed.Block] | None:
    """Return the products that make a convolution with few places, if it has few."""
    if how.groups != 1 or how.dilation != (1, 1) or kernel[0, 0].numel() == 1:
        return None
    places = how.places(x, kernel)
    if min(places) < 1 or math.prod(places) > _PLACES:
        return None
    return placed.blocks_of(x, _sides(kernel), places, how.stride, how.padding)


def _map(rows: Float[Tensor, "n rows c"], sides: tuple[int, int]) -> Images:
    """Return rows of channels as a map, channels last."""
    found: Tensor = rows.unflatten(1, sides).permute(0, 3, 1, 2)
    return found


def _sides(images: Tensor) -> tuple[int, int]:
    return images.shape[2], images.shape[3]


def _prefers_product(slope: Tensor, kernel: Tensor, how: Geometry) -> bool:
    """Tell where one matrix product is faster than a direct kernel: many channels, small maps."""
    # With AVX-512 direct kernels are as fast.
    if has_wide_kernels() or how.groups != 1 or how.dilation != (1, 1):
        return False
    channels = kernel.shape[0], kernel.shape[1]
    is_small = slope.shape[2] * slope.shape[3] <= 16
    is_product = min(channels) >= 64 and (max(channels) >= 128 or is_small)
    return is_product and kernel[0, 0].numel() <= 9


def _by_product(slope: Tensor, x: Tensor, kernel: Tensor, how: Geometry) -> Tensor:
    """Return the kernel's gradient as slopes times patches, in pieces that stay in the cache."""
    o, c, rows, columns = kernel.shape
    height, width = slope.shape[2:]
    step = max(1, _COLUMNS // (height * width * rows * columns * c))
    found = slope.new_zeros(o, rows * columns * c)
    for some, images in zip(slope.split(step), x.split(step), strict=True):
        slopes = some.permute(0, 2, 3, 1).reshape(-1, o)
        found.addmm_(slopes.t(), _patches(images, (rows, columns), (height, width), how))
    return found.view(o, rows, columns, c).permute(0, 3, 1, 2)


def _patches(
    x: Tensor, kernel: tuple[int, int], places: tuple[int, int], how: Geometry
) -> Float[Tensor, "rows columns"]:
    """Return a row for every place of the kernel, with the numbers that it covers there."""
    rows, columns = how.padding
    padded = channels_last(F.pad(x, (columns, columns, rows, rows))).permute(0, 2, 3, 1)
    n, c = len(x), x.shape[1]
    down, right = padded.stride(1), padded.stride(2)
    # With channels last a row of the kernel lies in one stretch.
    view = padded.as_strided(
        (n, *places, kernel[0], kernel[1] * c),
        (padded.stride(0), down * how.stride[0], right * how.stride[1], down, 1),
    )
    return view.reshape(n * places[0] * places[1], -1)


def channels_last(value: Tensor) -> Tensor:
    """Return images or kernels with their channels last in memory; other tensors as they are."""
    return value.contiguous(memory_format=torch.channels_last) if value.ndim == 4 else value
