"""How sharp a minimum may be in which a training with virtual steps stays.

Near a minimum the loss is a quadratic, and along an eigenvector of its Hessian with eigenvalue λ a
step multiplies the distance by 1 − β λ (1 − α λ)²: one factor 1 − α λ is the virtual step's, the
other that of the second derivative, which order 1 leaves out. Where this is above 1 or below −1,
training leaves.
"""

import math
from typing import Literal

Order = Literal[1, 2]


def contraction(curvature: float, alpha: float, beta: float, order: Order = 2) -> float:
    """Return by what a step on L_CICF multiplies the distance to a minimum; at α = 0 that of ERM.

    The batches are taken to be the same and the loss ½ λ θ².
    """
    return 1 - beta * curvature * (1 - alpha * curvature) ** order


def sharpest(alpha: float, beta: float, order: Order = 2) -> float:
    """Return the λ up to which training stays in a minimum: beyond it the factor passes −1, or 1.

    It is 2/β for α = 0, as for any gradient descent, and at order 2 again for α = β. Between them
    it is larger, so that minima are kept which ERM would leave; beyond α = β it is smaller. For
    small α it is just above 2/β, but around 1/α a second range of minima, sharper ones, is kept
    too. At order 1 it is never above 1/α: where the virtual step overshoots, the gradient at its
    end leads away from the minimum, however small β is.
    """
    if alpha == 0:
        return 2 / beta
    if order == 1:
        # β λ (1 − α λ) = 2 has a solution for 8 α ≤ β only.
        return (
            (1 - math.sqrt(1 - 8 * alpha / beta)) / (2 * alpha) if 8 * alpha <= beta else 1 / alpha
        )
    # β λ (1 − α λ)² = 2 with x = α λ is x (1 − x)² = c: it rises to 4/27 at 1/3, falls to 0 at 1,
    # and rises from there on.
    target = 2 * alpha / beta
    low, high = (0.0, 1 / 3) if target <= 4 / 27 else (1.0, 2 + math.cbrt(target))
    while (middle := (low + high) / 2) not in (low, high):
        low, high = (middle, high) if middle * (1 - middle) ** 2 < target else (low, middle)
    return high / alpha
