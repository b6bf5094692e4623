"""What one step did, in numbers to log."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from cicf.maths.hypergradient import Hypergradient
from cicf.maths.intervention import Parameters
from cicf.maths.moving import norm


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
    alpha, lengths = result.alpha, result.lengths
    return Terms(
        alpha=alpha,
        inner_loss=result.inner_loss,
        outer_loss=result.outer_loss / scale,
        outer_loss_before=result.outer_loss_before / scale,
        step_ratio=alpha * lengths.g / norm(theta.values()),
        cosine=lengths.g_times_v / (lengths.g * lengths.v),
        curvature_norm=alpha * lengths.c / scale,
        is_exact=is_exact,
    )
