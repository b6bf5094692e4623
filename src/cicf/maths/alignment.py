"""How far the features of domains lie apart: CORAL, MMD, and contrastive semantic alignment.

Of a batch, `domain` says which rows belong together; a domain without rows takes no part.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

_LEAST_SQUARED_DISTANCE = 1e-8


def coral(features: Float[Tensor, "n d"], domain: Int[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return the mean over pairs of domains of mean((μ_i − μ_j)²) + mean((Σ_i − Σ_j)²).

    Σ is the unbiased covariance, which one row does not have: a domain with a single row takes no
    part. 0 where fewer than two domains are left.
    """
    groups = [features[domain == each] for each in domain.unique()]
    moments = [_moments(rows) for rows in groups if len(rows) > 1]
    gaps = [
        (one.mean - other.mean).square().mean()
        + (one.covariance - other.covariance).square().mean()
        for one, other in combinations(moments, 2)
    ]
    return torch.stack(gaps).mean() if gaps else features.new_zeros(())


def mmd_squared(
    features: Float[Tensor, "n d"], domain: Int[Tensor, " n"], gammas: Sequence[float]
) -> Float[Tensor, "k k"]:
    """Return MMD² between every two domains of a batch, with the kernel Σ_γ exp(−γ‖z − z'‖²).

    MMD²_ij = mean k(z_i, z_i') + mean k(z_j, z_j') − 2 mean k(z_i, z_j), where a row meets itself,
    too: biased, never below 0, and 0 on the diagonal.
    """
    distances = squared_distances(features)
    kernel = torch.stack([torch.exp(-gamma * distances) for gamma in gammas]).sum(0)
    is_of = (domain.unique()[:, None] == domain).to(features.dtype)
    shares = is_of / is_of.sum(1, keepdim=True)
    means: Tensor = shares @ kernel @ shares.T
    own = means.diagonal()
    return own[:, None] + own[None, :] - 2 * means


class Pairs(NamedTuple):
    """Holds which pairs of rows of a batch come from two domains, each pair once (u < v)."""

    alike: Bool[Tensor, "n n"]
    """Both of one class."""
    unlike: Bool[Tensor, "n n"]
    """Of two classes."""


def cross_domain_pairs(y: Int[Tensor, " n"], domain: Int[Tensor, " n"]) -> Pairs:
    """Return all pairs of rows that come from two domains."""
    crosses = (domain[:, None] != domain).triu()
    is_alike = y[:, None] == y
    return Pairs(crosses & is_alike, crosses & ~is_alike)


def contrastive_alignment(
    features: Float[Tensor, "n d"], pairs: Pairs, *, margin: float
) -> Float[Tensor, ""]:
    """Return the mean over pairs of e² where they are alike, of max(0, m − e)² where they are not.

    e = √max(‖z_u − z_v‖², 1e-8), whose slope is finite where two rows coincide. 0 without pairs.
    """
    squared = squared_distances(features).clamp(min=_LEAST_SQUARED_DISTANCE)
    push = (margin - squared.sqrt()).clamp(min=0).square()
    count = pairs.alike.sum() + pairs.unlike.sum()
    total = torch.where(pairs.alike, squared, 0).sum() + torch.where(pairs.unlike, push, 0).sum()
    return total / count.clamp(min=1)


def squared_distances(features: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return ‖z_u − z_v‖² of every two rows, by inner products."""
    # Distances do not see the mean, but inner products lose digits to it.
    centred = features - features.mean(0, keepdim=True)
    products = centred @ centred.T
    lengths = products.diagonal()
    return (lengths[:, None] + lengths[None, :] - 2 * products).clamp(min=0)


class _Moments(NamedTuple):
    mean: Float[Tensor, " d"]
    covariance: Float[Tensor, "d d"]


def _moments(rows: Float[Tensor, "n d"]) -> _Moments:
    mean = rows.mean(0)
    centred = rows - mean
    return _Moments(mean, centred.T @ centred / (len(rows) - 1))
