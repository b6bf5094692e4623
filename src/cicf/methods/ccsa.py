"""CCSA: pairs from two domains lie close if of one class, far apart if not. Needs domain labels."""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from pydantic import Field, PositiveFloat
from torch import Tensor

from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.maths.alignment import Pairs, contrastive_alignment, cross_domain_pairs
from cicf.method import About, Given, LossMethod, MethodConfig
from cicf.models.split import SplitModel
from cicf.models.taps import features_and_logits


class CcsaConfig(MethodConfig):
    """Pulls features of one class together across source domains, and pushes classes apart."""

    about: ClassVar[About] = About(
        reference="Motiian et al., ICCV 2017", needs_domains=True, cost=1.1
    )
    name: Literal["ccsa"] = "ccsa"
    """The method, as `cicf methods` lists it."""
    weight: float = Field(default=0.25, ge=0, le=1)
    """a, the weight of the pairs; the cross-entropy has 1 − a. 0.25 in the authors' code [code]."""
    margin: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """m, the distance from which on two classes are far enough apart; 1 in their code [code]."""
    negatives_per_positive: PositiveFloat = 3.0
    """Pairs of two classes at most for each pair of one class, taken at random; 3 in their code
    [code], `inf` for all pairs."""

    def build(self, given: Given) -> "Ccsa":
        """Return CCSA on this model."""
        return Ccsa(self, given.model)


class Ccsa(LossMethod):
    """Minimises the cross-entropy and the contrastive loss of pairs across domains."""

    sampling = Sampling(outer="domains")
    least_domains = 2

    def __init__(self, config: CcsaConfig, model: SplitModel) -> None:
        super().__init__(model)
        self._config = config

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        """Return (1 − a) CE + a · the mean over pairs of e², or of max(0, m − e)²."""
        features, logits = features_and_logits(model, batch.x)
        pairs = _limited(
            cross_domain_pairs(batch.y, batch.domain), self._config.negatives_per_positive
        )
        alignment = contrastive_alignment(features, pairs, margin=self._config.margin)
        weight = self._config.weight
        return (1 - weight) * F.cross_entropy(logits, batch.y) + weight * alignment


def _limited(pairs: Pairs, negatives_per_positive: float) -> Pairs:
    """Return the pairs with so many of two classes at most for each of one class."""
    if math.isinf(negatives_per_positive):
        return pairs
    most = int(negatives_per_positive * int(pairs.alike.sum()))
    return pairs._replace(unlike=_some(pairs.unlike, most))


def _some(pairs: Bool[Tensor, "n n"], most: int) -> Bool[Tensor, "n n"]:
    """Return as many of the pairs, at random."""
    places = pairs.flatten().nonzero()[:, 0]
    chosen = places[torch.randperm(len(places), device=places.device)[:most]]
    found: Tensor = torch.zeros_like(pairs).flatten().index_fill(0, chosen, True)
    return found.reshape(pairs.shape)
