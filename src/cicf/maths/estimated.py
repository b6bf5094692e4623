"""What it adds to the loss that g† is estimated from M images.

With the gradient of all training images, L_CICF is the training loss at θ†, which ERM minimises,
too. A batch has ĝ = g† + e instead, and L(θ − α ĝ) is L(θ† − α e). Where e is 0 on average, so is
the term of first order, and the mean over batches is L(θ†) + ½ α² E[eᵀ H e] to second order, with
the Hessian H of L at θ†: a price on curvature along directions in which images disagree. It is what
tells CICF's loss from ERM's. Of a Hessian λ I it is ½ α² λ times Eq. 15, or Eq. 19 for clusters.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from cicf.maths.intervention import Parameters


def added_by_error(
    loss: Callable[[Parameters], Float[Tensor, ""]],
    theta_dagger: Parameters,
    error: Parameters,
    alpha: float,
) -> Float[Tensor, ""]:
    """Return ½ α² eᵀ H e, what an error of g† adds to the loss at θ†; exact for a quadratic.

    The term of first order, −α ⟨∇L(θ†), e⟩, is left out: it is 0 on average over batches only.
    """

    def slope(at: Parameters) -> Tensor:
        return _inner(torch.func.grad(loss)(at), error)

    return alpha**2 / 2 * _inner(torch.func.grad(slope)(theta_dagger), error)


def _inner(a: Parameters, b: Parameters) -> Float[Tensor, ""]:
    return torch.stack([(a[name] * b[name]).sum() for name in a]).sum()
