"""The linear layer, whose weights' gradient is left out where nobody reads it.

In a network with large linear layers that gradient is most of what a step has to hold.
"""

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from cicf.maths.products import product
from cicf.maths.straight import made
from cicf.maths.unread import blank, is_unread

Rows = Float[Tensor, "m _"]


def linear(x: Float[Tensor, "... _"], weight: Rows, bias: Tensor | None) -> Float[Tensor, "... _"]:
    """Return x Wᵀ + b, which can be differentiated twice."""
    # As they are where they can be: what is a view is not rectified in place.
    rows = x if x.ndim == 2 else x.reshape(-1, x.shape[-1])
    found: Tensor = _Linear.apply(rows, weight, bias, (id(weight), id(bias)))
    return found if x.ndim == 2 else found.view(*x.shape[:-1], len(weight))


class _Linear(Function):
    """Is the value; its backward is `_LinearGradient`."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, names: tuple[int, int]
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.names = names
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        wanted = ctx.needs_input_grad[:3]
        return *_LinearGradient.apply(slopes[0], *ctx.saved_tensors, wanted, ctx.names), None


class _LinearGradient(Function):
    """Is the gradient for rows, weight and bias; its backward is the second derivative."""

    @staticmethod
    def forward(
        ctx: Any,
        slope: Tensor,
        x: Tensor,
        weight: Tensor,
        wanted: tuple[bool, bool, bool],
        names: tuple[int, int],
    ) -> Any:
        ctx.save_for_backward(slope, x, weight)
        ctx.set_materialize_grads(False)
        ctx.weight = names[0]
        of_weight, of_bias = map(is_unread, names)
        to_x = product(slope, weight) if wanted[0] else None
        to_weight = to_bias = None
        if wanted[1]:
            to_weight = blank(weight) if of_weight else _for_weight(slope, x, names[0])
        if wanted[2]:
            to_bias = blank(weight[:, 0]) if of_bias else slope.sum(0)
        return to_x, to_weight, to_bias

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        """Pull directions (a, k, b) for rows, weight and bias back to slope, rows and weight.

        ⟨gradient, direction⟩ = ⟨slope, x kᵀ + a Wᵀ + b⟩.
        """
        slope, x, weight = ctx.saved_tensors
        a, k, b = directions
        needs = ctx.needs_input_grad
        to_slope = to_x = to_weight = None
        if needs[0]:
            to_slope = _directional(x, weight, (a, k, b))
        if needs[1] and k is not None:
            to_x = product(slope, k)
        if needs[2] and a is not None:
            to_weight = _for_weight(slope, a, ctx.weight)
        return to_slope, to_x, to_weight, None, None


def _for_weight(slope: Rows, x: Rows, name: int) -> Tensor | None:
    """Return the gradient for the weight, or None where it has gone straight into its sum."""

    def make(into: Tensor | None) -> Tensor:
        return product(slope.t(), x) if into is None else into.addmm_(slope.t(), x)

    return made(name, make)


def _directional(x: Tensor, weight: Tensor, direction: tuple[Tensor | None, ...]) -> Tensor | None:
    """Return how the value changes when rows, weight and bias move in a direction."""
    a, k, b = direction
    if k is None and a is None:
        # Only where weight and rows are constants, and the bias is not.
        return None if b is None else b.expand(len(x), -1)
    if k is None:
        assert a is not None
        return _plus(product(a, weight.t()), b)
    found = _plus(product(x, k.t()), b)
    return found if a is None else found + product(a, weight.t())


def _plus(rows: Rows, bias: Tensor | None) -> Rows:
    return rows if bias is None else rows + bias
