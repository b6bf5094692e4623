"""What one step did, in numbers to log."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from cicf.maths.convolution import channels_last
from cicf.maths.hypergradient import Hypergradient, norm
from cicf.maths.intervention import Parameters
from cicf.maths.shares import Gradients


@dataclass(frozen=True, slots=True)
class Terms:
    """What one step did; tensors are detached scalars, left on the device."""

    alpha: float
    """α of this step, after `max_step_ratio`."""
    inner_loss: Float[Tensor, ""]
    """L̃ at θ, the mean loss of the inner batch."""
    outer_loss: Float[Tensor, ""]
    """L_CICF: the mean loss of the outer batch at θ† (Eq. 10)."""
    outer_loss_before: Float[Tensor, ""]
    """The mean loss of the outer batch at θ; NaN unless it was measured."""
    step_ratio: Float[Tensor, ""]
    """‖α g†‖ / ‖θ‖, the size of the virtual step."""
    cosine: Float[Tensor, ""]
    """cos(g†, v): near 1 when both batches ask for the same move; NaN when one asks for none."""
    curvature_norm: Float[Tensor, ""]
    """‖α ∇⟨g†, v⟩‖ over θ and φ, the term that order 1 leaves out; 0 at order 1."""
    is_exact: bool
    """Whether this is the gradient of L_CICF on the whole batches, as one process would take it."""


def terms_of(
    result: Hypergradient,
    theta: Parameters,
    *,
    scale: float | Tensor,
    is_exact: bool,
) -> Terms:
    """Return the terms of a step whose outer loss had been multiplied by `scale`."""
    alpha, g, v = result.alpha, norm(result.g), norm(result.v)
    return Terms(
        alpha=alpha,
        inner_loss=result.inner_loss,
        outer_loss=result.outer_loss / scale,
        outer_loss_before=result.outer_loss_before / scale,
        step_ratio=alpha * g / norm(theta.values()),
        cosine=_dot(result.g, result.v) / (g * v),
        curvature_norm=alpha * norm(result.c) / scale,
        is_exact=is_exact,
    )


def _dot(a: Gradients, b: Gradients) -> Float[Tensor, ""]:
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x is not None and y is not None]
    products = [torch.dot(_flat(x), _flat(y)) for x, y in pairs]
    return torch.stack(products).sum() if products else torch.zeros(())


def _flat(value: Tensor) -> Float[Tensor, " n"]:
    """Return the numbers in one row, of kernels in the order in which they lie, channels last.

    Both of a pair lie alike, so that nothing large is made on the way.
    """
    return (channels_last(value).permute(0, 2, 3, 1) if value.ndim == 4 else value).reshape(-1)
