"""Soft class confusions: how a network mistakes the classes of a domain, and how domains differ.

The global alignment of MASF (Dou et al., 2019): for class q of domain k,

    s_q = softmax(z̄_q / τ),  z̄_q the mean logits of the samples of class q,

which with a linear head are the logits of the mean features. Two domains i and j differ by

    (1/C) Σ_q ½ [KL(s_q^i ‖ s_q^j) + KL(s_q^j ‖ s_q^i)]

over the classes that both have samples of.
"""

from typing import NamedTuple

import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

LEAST = 1e-8
"""What probabilities are raised to before a logarithm is taken."""


class Confusions(NamedTuple):
    """Holds s_q, a row for each class q, and which classes there are samples of."""

    s: Float[Tensor, "c c"]
    is_present: Bool[Tensor, " c"]


def soft_confusions(
    logits: Float[Tensor, "n c"], y: Int[Tensor, " n"], *, temperature: float
) -> Confusions:
    """Return the soft confusions of one domain; the row of a class without samples is uniform."""
    members = F.one_hot(y, logits.shape[1]).T.to(logits)
    counts = members.sum(dim=1)
    means = (members @ logits) / counts.clamp(min=1)[:, None]
    return Confusions((means / temperature).softmax(dim=1), counts > 0)


def symmetric_divergence(
    p: Float[Tensor, "... c"], q: Float[Tensor, "... c"]
) -> Float[Tensor, "..."]:
    """Return ½ [KL(p ‖ q) + KL(q ‖ p)] of each pair of rows."""
    p, q = p.clamp(min=LEAST), q.clamp(min=LEAST)
    return ((p - q) * (p.log() - q.log())).sum(dim=-1) / 2


def misalignment(one: Confusions, other: Confusions) -> Float[Tensor, ""]:
    """Return how two domains differ: the sum over the classes of both, divided by all classes."""
    is_shared = one.is_present & other.is_present
    # Divided by C and not by the classes that are shared, as in the authors' code.
    return symmetric_divergence(one.s, other.s)[is_shared].sum() / len(is_shared)
