"""The way from θ to θ†: how long it is, how long it may be, and where it leads."""

import math
from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm

from cicf.maths.convolution import channels_last
from cicf.maths.intervention import Parameters
from cicf.maths.shares import Gradients

_STRETCH = 1 << 20
"""Numbers that are subtracted at a time: 4 MiB in single precision, which a cache can hold."""


def moved(theta: Parameters, g: Gradients, alpha: float, *, in_place: bool = False) -> Parameters:
    """Return θ† = θ − α g† as new leaves (Eq. 9); a parameter that g† does not reach stays.

    In place θ† takes the memory of g†, which is gone then.
    """
    found = dict(theta)
    for (name, value), slope in zip(theta.items(), g, strict=True):
        if slope is not None and alpha != 0:
            # In the order that θ is in, or the passes to come would have to turn it around.
            out = slope if in_place and slope.stride() == value.stride() else None
            found[name] = torch.sub(value.detach(), slope, alpha=alpha, out=out)
    return leaves(found)


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


def product(g: Gradients, v: Gradients) -> Float[Tensor, ""]:
    """Return ⟨g, v⟩, None standing for zero."""
    pairs = ((a, b) for a, b in zip(g, v, strict=True) if a is not None and b is not None)
    return sum((torch.dot(_flat(a), _flat(b)) for a, b in pairs), start=torch.zeros_like(norm(v)))


def along(theta: Parameters, theta_dagger: Parameters, v: Gradients) -> Float[Tensor, ""]:
    """Return ⟨θ − θ†, v⟩, a stretch at a time: the difference would be as large as the model."""
    found = torch.zeros_like(norm(v))
    for (name, value), slope in zip(theta.items(), v, strict=True):
        if slope is not None:
            triple = value.detach(), theta_dagger[name].detach(), slope
            stretches = zip(*(_flat(each).split(_STRETCH) for each in triple), strict=True)
            found = sum((torch.dot(a - b, c) for a, b, c in stretches), start=found)
    return found


def _flat(value: Tensor) -> Float[Tensor, " n"]:
    """Return the numbers in one row, of kernels in the order in which they lie, channels last.

    Both of a pair lie alike, so that nothing large is made on the way.
    """
    return (channels_last(value).permute(0, 2, 3, 1) if value.ndim == 4 else value).reshape(-1)
