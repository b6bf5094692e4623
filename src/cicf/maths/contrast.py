"""The two losses of MatchDG: partners of other domains lie close, other classes lie elsewhere."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

SHORTEST = 1e-8
"""Features shorter than this are not stretched to length 1."""


def match_contrast(
    z: Float[Tensor, "g d f"], y: Int[Tensor, "g d"], domain: Int[Tensor, "g d"], *, tau: float
) -> Float[Tensor, ""]:
    """Return the mean of −log[e^{s_ij/τ} / (e^{s_ij/τ} + Σ_n e^{s_in/τ})] over partners i, j.

    A row of z is a group of d matched images; i and j are two of a group and of different domains,
    in both orders, n all images of the batch of another class than i, s the cosine. In a batch of
    one class, and where there are no partners, it is 0, as is its gradient.
    """
    unit = F.normalize(z, dim=2, eps=SHORTEST)
    classes, every = y.flatten(), unit.flatten(0, 1)
    # The least number instead of −∞, whose derivative would be NaN where there is no other class.
    least = torch.finfo(z.dtype).min
    is_alike = classes[:, None] == classes
    others = (every @ every.T / tau).masked_fill(is_alike, least).logsumexp(1).view_as(y)
    partners = unit @ unit.mT / tau
    losses = torch.logaddexp(others[:, :, None], partners) - partners
    return _mean(losses, pairs_of(domain))


def match_distance(logits: Float[Tensor, "g d c"], domain: Int[Tensor, "g d"]) -> Float[Tensor, ""]:
    """Return the mean over partners i, j of ‖logits_i − logits_j‖²; 0 where there are none."""
    apart = (logits[:, :, None] - logits[:, None]).square().sum(3)
    return _mean(apart, pairs_of(domain))


def pairs_of(domain: Int[Tensor, "g d"]) -> Bool[Tensor, "g d d"]:
    """Tell which two of a group are partners: those of different domains."""
    return domain[:, :, None] != domain[:, None]


def _mean(values: Float[Tensor, "g d d"], is_counted: Bool[Tensor, "g d d"]) -> Float[Tensor, ""]:
    return values.where(is_counted, 0).sum() / is_counted.sum().clamp(min=1)
