"""A convolution and the batch norm by running statistics after it, differentiated as one.

With r one over the deviation and s = r w, both together are a convolution with another kernel:

    y = w r (x ∗ K − mean) + b = x ∗ (s K) + b − s mean

So the map between the two need not be kept, and batch norm has no gradients of its own that would
go through maps: they are sums over kernels, which in the shallow layers are far smaller.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from cicf.maths.convolution import (
    Geometry,
    Images,
    Kernel,
    channels_last,
    directional,
    for_image,
    for_kernel,
)
from cicf.maths.operators import Statistics, affine
from cicf.maths.straight import made
from cicf.maths.unread import blank, is_unread

_OFFSET = 16.0
"""Deviations by which a mean may lie beside 0: its part cancels in the gradient for w."""


class Convolved(NamedTuple):
    """Holds a convolution without a bias: its image, its kernel, how it moves, and its value."""

    x: Images
    kernel: Kernel
    how: Geometry
    value: Images


def is_worth_folding(of: Convolved, by: Statistics) -> bool:
    """Tell whether sums over the kernel are less work than over the map, and exact enough."""
    if of.value.numel() < 2 * of.kernel.numel():
        return False
    return bool((by.mean.abs() * by.scale).amax() <= _OFFSET)


def folded(
    of: Convolved, weight: Float[Tensor, " c"], bias: Float[Tensor, " c"], by: Statistics
) -> Images:
    """Return batch norm of a convolution, as a function of image, kernel, weight and bias."""
    names = id(of.kernel), id(weight), id(bias)
    x, kernel = channels_last(of.x), channels_last(of.kernel)
    value = channels_last(of.value.detach())
    found: Tensor = _Folded.apply(x, kernel, weight, bias, value, of.how, by, names)
    return found


class _Folded(Function):
    """Is the value; its backward is `_FoldedGradient`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        kernel: Tensor,
        weight: Tensor,
        bias: Tensor,
        value: Tensor,
        how: Geometry,
        by: Statistics,
        names: tuple[int, int, int],
    ) -> Tensor:
        # Saved, not kept, so that torch sees it when a model moves its statistics in between.
        ctx.save_for_backward(x, kernel, weight, by.mean, by.variance)
        ctx.how, ctx.epsilon, ctx.names = how, by.epsilon, names
        return affine(value, weight, bias, by)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        x, kernel, weight, mean, variance = ctx.saved_tensors
        by, wanted = Statistics(mean, variance, ctx.epsilon), ctx.needs_input_grad[:4]
        slope = channels_last(slopes[0])
        found = _FoldedGradient.apply(slope, x, kernel, weight, ctx.how, by, wanted, ctx.names)
        return *found, None, None, None, None


class _FoldedGradient(Function):
    """Is the gradient for image, kernel, weight and bias; its backward the second derivative.

    With G the gradient for the folded kernel s K, and σ the sum of the slopes, it is
    s G for the kernel, r (⟨G, K⟩ − mean σ) for the weight, σ for the bias.
    """

    @staticmethod
    def forward(
        ctx: Any,
        slope: Tensor,
        x: Tensor,
        kernel: Tensor,
        weight: Tensor,
        how: Geometry,
        by: Statistics,
        wanted: tuple[bool, bool, bool, bool],
        names: tuple[int, int, int],
    ) -> Any:
        ctx.set_materialize_grads(False)
        ctx.how, ctx.by, ctx.kernel = how, by, names[0]
        reads = [w and not is_unread(name) for w, name in zip(wanted[1:], names, strict=True)]
        s, r = by.scale * weight, by.scale
        g = for_kernel(slope, x, kernel, how) if reads[0] or reads[1] else None
        sigma = slope.sum((0, 2, 3)) if reads[1] or reads[2] else None
        ctx.save_for_backward(slope, x, kernel, weight, g)
        to_image = for_image(slope, x, _times(s, kernel), how) if wanted[0] else None
        to_kernel, to_weight, to_bias = (
            blank(like) if is_wanted else None
            for like, is_wanted in zip((kernel, weight, weight), wanted[1:], strict=True)
        )
        if g is not None and reads[0]:
            to_kernel = _added(_times(s, g), names[0])
        if g is not None and sigma is not None and reads[1]:
            to_weight = r * (_dot(g, kernel) - by.mean * sigma)
        return to_image, to_kernel, to_weight, sigma if reads[2] else to_bias

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        """Pull directions (a, k, p, q) for image, kernel, weight and bias back.

        With D = s k + r p K, the direction in which the folded kernel moves,
        ⟨gradient, direction⟩ = ⟨slope, x ∗ D + a ∗ (s K) + q − r p mean⟩.
        """
        slope, x, kernel, weight, g = ctx.saved_tensors
        a, k, p, q = (None if each is None else channels_last(each) for each in directions)
        needs, how, r = ctx.needs_input_grad, ctx.how, ctx.by.scale
        s, rp = r * weight, None if p is None else r * p
        d = _sum(_where(_times, s, k), _where(_times, rp, kernel))
        to_slope = to_image = h = None
        if needs[0]:
            shift = _sum(q, None if rp is None else -rp * ctx.by.mean)
            to_slope = directional(x, _times(s, kernel), (a, d, shift), how)
        if needs[1] and d is not None:
            to_image = for_image(slope, x, d, how)
        if d is not None and (g is None or torch.is_grad_enabled()):
            # As a number that is known it would have no part in a third derivative.
            g = for_kernel(slope, x, kernel, how)
        if a is not None:
            h = for_kernel(slope, a, kernel, how)
        to_kernel = _sum(_where(_times, s, h), _where(_times, rp, g))
        to_weight = _sum(_where(_dot, h, kernel), _where(_dot, g, k))
        return (
            to_slope,
            to_image,
            _added(to_kernel, ctx.kernel) if needs[2] else None,
            None if to_weight is None or not needs[3] else r * to_weight,
            *(None,) * 4,
        )


def _added(gradient: Kernel | None, name: int) -> Kernel | None:
    """Return a kernel's gradient, or None where it has gone straight into its sum."""
    if gradient is None:
        return None
    return made(name, lambda into: gradient if into is None else into.add_(gradient))


def _sum(*parts: Tensor | None) -> Tensor | None:
    found = [each for each in parts if each is not None]
    return sum(found[1:], start=found[0]) if found else None


def _where(
    function: Callable[[Tensor, Tensor], Tensor], a: Tensor | None, b: Tensor | None
) -> Tensor | None:
    """Return what a function makes of two tensors, None where one of them is missing."""
    return None if a is None or b is None else function(a, b)


def _times(values: Float[Tensor, " c"], kernel: Kernel) -> Kernel:
    """Return each filter of a kernel times its number."""
    return values[:, None, None, None] * kernel


def _dot(a: Kernel, b: Kernel) -> Float[Tensor, " c"]:
    """Return the product of two kernels, filter by filter."""
    return (a * b).sum((1, 2, 3))
