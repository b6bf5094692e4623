"""Gradient reversal: what is minimised behind it is maximised before it."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, strength: Tensor) -> Tensor:
        # A view, since a function that returns its own argument would be taken for one in place.
        del strength
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        del output
        (ctx.strength,) = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        # Made of torch's own operations, so that it has a derivative in turn.
        return -ctx.strength * gradient, None


def reversed_gradient(
    x: Float[Tensor, "*shape"], strength: float | Float[Tensor, ""]
) -> Float[Tensor, "*shape"]:
    """Return x, whose gradient is multiplied by −λ wherever it passes back; λ is `strength`.

    There is no function with this gradient, so a second derivative is what autograd makes of it:
    every pass back through here has the factor −λ. Of f behind it, with y = x, the first derivative
    is −λ f'(y), and the derivative of that by x, which passes a second time, is λ² f''(y).
    """
    factor = torch.as_tensor(strength, dtype=x.dtype, device=x.device)
    # torch has no types for `apply`.
    result: Tensor = _Reversal.apply(x, factor)  # type: ignore[no-untyped-call]
    return result
