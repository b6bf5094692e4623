"""Whether gradients within a cluster point the same way, as the paper says they usually do."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def cosines(gram: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return the cosine of every pair of gradients from their inner products; none may be zero."""
    lengths = gram.diagonal().sqrt()
    return gram / lengths[:, None] / lengths


class Agreement(NamedTuple):
    """Holds mean cosines of pairs of images, over the same clusters with the same weights P(K_k).

    NaN where there are no such pairs: no cluster with two images, no class with two clusters.
    """

    within: Float[Tensor, ""]
    """Of two images of a cluster."""
    same_class: Float[Tensor, ""]
    """Of an image of the cluster and one of another cluster of its class."""
    elsewhere: Float[Tensor, ""]
    """Of an image of the cluster and one of any other cluster."""


def agreement(
    cosine: Float[Tensor, "n n"],
    cluster: Int[Tensor, " n"],
    label: Int[Tensor, " k"],
    *,
    weight: Float[Tensor, " n"],
) -> Agreement:
    """Return the mean cosines; `weight` says how often each image counts.

    An image makes no pair with itself, however often it counts. A cluster takes part when it has
    two images, and a sister in its class unless no cluster has one.
    """
    member = F.one_hot(cluster, len(label)).to(cosine.dtype) * weight[:, None]
    sums, sizes, selves = member.T @ cosine @ member, member.sum(0), member.square().sum(0)
    others = 1 - torch.eye(len(label), dtype=cosine.dtype)
    sisters = others * (label[:, None] == label)
    within = (sums.diagonal() - selves) / (sizes.square() - selves)
    same_class = (sums * sisters).sum(1) / (sizes * (sisters @ sizes))
    elsewhere = (sums * others).sum(1) / (sizes * (others @ sizes))
    takes_part = sizes.square() > selves
    has_sister = sisters @ sizes > 0
    if bool((takes_part & has_sister).any()):
        takes_part &= has_sister
    share = sizes * takes_part
    means = (within, same_class, elsewhere)
    # Those that take no part may be 0 / 0, which times 0 would still be NaN.
    totals = (share[takes_part] @ each[takes_part] for each in means)
    return Agreement(*(total / share.sum() for total in totals))


def resampled(
    cluster: Int[Tensor, " n"], *, count: int, generator: torch.Generator
) -> Float[Tensor, "count n"]:
    """Return how often each image comes when the images of every cluster are drawn anew.

    N_k^K images of cluster k with replacement: the bootstrap for given clusters.
    """
    order = cluster.argsort(stable=True)
    sizes = cluster.bincount()
    first = (sizes.cumsum(0) - sizes)[cluster]
    places = torch.rand(count, len(cluster), generator=generator, dtype=torch.float64)
    drawn = order[first + (places * sizes[cluster]).long()]
    ones = torch.ones(drawn.shape, dtype=torch.float64)
    return torch.zeros_like(ones).scatter_add_(1, drawn, ones)
