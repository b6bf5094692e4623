"""The style of an image: mean and standard deviation of each channel of a map, and mixtures."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

EPS = 1e-6
"""What is added to the variance before its root is taken, as in MixStyle's own code."""


class Statistics(NamedTuple):
    """Holds what is left of a map when its places are forgotten."""

    mean: Float[Tensor, "n c"]
    std: Float[Tensor, "n c"]


def channel_statistics(z: Float[Tensor, "n c h w"], *, eps: float = EPS) -> Statistics:
    """Return the mean and √(variance + eps) of each channel over its places.

    The variance is the unbiased one, so that a map needs two places at least. The graph is kept.
    """
    return Statistics(z.mean((2, 3)), (z.var((2, 3)) + eps).sqrt())


def with_mixed_styles(
    z: Float[Tensor, "n c h w"],
    partner: Int[Tensor, " n"],
    share: Float[Tensor, " n"],
    *,
    eps: float = EPS,
) -> Float[Tensor, "n c h w"]:
    """Return each map with the style share · own + (1 − share) · partner's.

    Styles are constants here: no gradient goes through mean and standard deviation, neither those
    that are taken off nor those that are put on.
    """
    mean, std = channel_statistics(z.detach(), eps=eps)
    own = share[:, None]
    mixed_mean = own * mean + (1 - own) * mean[partner]
    mixed_std = own * std + (1 - own) * std[partner]
    normed = (z - _on_places(mean)) / _on_places(std)
    return _on_places(mixed_std) * normed + _on_places(mixed_mean)


def _on_places(statistic: Float[Tensor, "n c"]) -> Float[Tensor, "n c 1 1"]:
    return statistic[:, :, None, None]
