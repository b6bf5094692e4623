"""The way from θ to θ†: how long it is, how long it may be, and where it leads."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm

from cicf.maths.intervention import Parameters
from cicf.maths.shares import Gradients


def moved(theta: Parameters, g: Gradients, alpha: float) -> Parameters:
    """Return θ† = θ − α g† as new leaves (Eq. 9); a parameter that g† does not reach stays."""
    pairs = zip(theta.items(), g, strict=True)
    return leaves(
        {
            name: value
            if slope is None or alpha == 0
            else torch.sub(value.detach(), slope, alpha=alpha)
            for (name, value), slope in pairs
        }
    )


def bounded_alpha(alpha: float, g: Gradients, theta: Parameters, *, max_step_ratio: float) -> float:
    """Return the largest α' ≤ α with ‖α' g†‖ ≤ `max_step_ratio` ‖θ‖; it is never differentiated."""
    if math.isinf(max_step_ratio) or alpha == 0:
        return alpha
    size = float(norm(g))
    return alpha if size == 0 else min(alpha, max_step_ratio * float(norm(theta.values())) / size)


def norm(values: Iterable[Tensor | None]) -> Float[Tensor, ""]:
    """Return the Euclidean norm of all values together, None standing for zero."""
    return get_total_norm([value.detach() for value in values if value is not None])


def leaves(parameters: Parameters) -> Parameters:
    """Return the same values as leaves of a graph of their own."""
    return {name: value.detach().requires_grad_() for name, value in parameters.items()}
