"""Eq. 19 for N_k = M P(K_k) as it stands, and for what a sampler makes of it in whole numbers."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.maths.stratified import Clusters, estimator_error


def proportional_standard_error(clusters: Clusters, *, m: int) -> Float[Tensor, ""]:
    """Return SE_ours of Eq. 19 with N_k = M P(K_k), a whole number or not.

    That is Σ_k P(K_k) / M (1 − M / N) N_k^K / (N_k^K − 1) σ_k². Where N_k is no whole number, and
    above all where it is below 1, no batch has this error: see `rounded_error`.
    """
    sizes = clusters.sizes.to(clusters.variances.dtype)
    unbiased = torch.where(sizes > 1, sizes / (sizes - 1).clamp(min=1), torch.zeros_like(sizes))
    left = 1 - m / sizes.sum()
    return left / m * (clusters.shares * unbiased * clusters.variances).sum()


def rounded_error(clusters: Clusters, counts: Int[Tensor, "o k"]) -> Float[Tensor, ""]:
    """Return E‖ĝ − μ‖² of Eq. 7 when each row of N_k is drawn as often as the others.

    What rounding adds to Eq. 19 is in it: the places of a batch vary between clusters.
    """
    # Offsets near each other round alike: there are at most K† different rows.
    rows, often = counts.unique(dim=0, return_counts=True)
    errors = torch.stack([torch.stack(estimator_error(clusters, row)).sum() for row in rows])
    mean: Tensor = often.to(errors.dtype) @ errors / len(counts)
    return mean


def systematic_counts(sizes: Int[Tensor, " k"], m: int) -> Int[Tensor, "n k"]:
    """Return the N_k of every offset of the systematic rounding, one a row."""
    n = int(sizes.sum())
    edges = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    return ((edges * m + torch.arange(n)[:, None]) // n).diff()
