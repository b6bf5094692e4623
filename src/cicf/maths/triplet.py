"""The triplet loss with semi-hard negatives (Schroff et al., 2015)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def semi_hard_triplet_loss(
    z: Float[Tensor, "n d"], y: Int[Tensor, " n"], *, margin: float
) -> Float[Tensor, ""]:
    """Return the mean over all ordered pairs (a, p) of a class of [m + D_ap − D_an]₊.

    D is the squared Euclidean distance. The negative n is the nearest one that is farther from a
    than p is, or the farthest of all if none is. Without a pair or without a negative it is 0.
    """
    distances = squared_distances(z)
    is_same = y[:, None] == y[None, :]
    is_pair = is_same & ~torch.eye(len(y), dtype=torch.bool, device=y.device)
    # In a batch of several classes every anchor has a negative, in one of a single class none has.
    is_pair &= ~is_same.all()
    losses = (margin + distances - semi_hard_negatives(distances, y))[is_pair]
    return losses.clamp(min=0).sum() / max(len(losses), 1)


def semi_hard_negatives(
    distances: Float[Tensor, "n n"], y: Int[Tensor, " n"]
) -> Float[Tensor, "n n"]:
    """Return D_an of the negative of anchor a for a positive p, for each (a, p).

    Without meaning in rows of anchors that have no negative.
    """
    is_negative = y[:, None] != y[None, :]
    count = is_negative.sum(dim=1, keepdim=True)
    # Rows in which negatives come first, from near to far.
    order = distances.detach().masked_fill(~is_negative, torch.inf).argsort(dim=1)
    ranked = distances.gather(1, order)
    is_ranked = torch.arange(len(y), device=y.device) < count
    keys = ranked.detach().masked_fill(~is_ranked, torch.inf)
    nearest_beyond = torch.searchsorted(keys, distances.detach(), right=True)
    return ranked.gather(1, nearest_beyond.minimum(count - 1).clamp(min=0))


def squared_distances(z: Float[Tensor, "n d"]) -> Float[Tensor, "n n"]:
    """Return ‖z_i − z_j‖², by differences, so that a distance is never below 0."""
    return (z[:, None] - z[None, :]).square().sum(dim=2)
