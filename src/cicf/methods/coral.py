"""CORAL: features of all source domains with the same mean and covariance. Needs domain labels."""

from typing import ClassVar, Literal

import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.maths.alignment import coral
from cicf.method import About, Given, LossMethod, MethodConfig
from cicf.models.split import SplitModel
from cicf.models.taps import features_and_logits


class CoralConfig(MethodConfig):
    """Adds how much means and covariances of features differ between source domains."""

    about: ClassVar[About] = About(
        reference="Sun and Saenko, ECCV Workshops 2016", needs_domains=True, cost=1.1
    )
    name: Literal["coral"] = "coral"
    """The method, as `cicf methods` lists it."""
    gamma: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    """γ, the weight of the differences; 1 in DomainBed [code]."""

    def build(self, given: Given) -> "Coral":
        """Return CORAL on this model."""
        return Coral(given.model, gamma=self.gamma)


class Coral(LossMethod):
    """Minimises the cross-entropy and the differences of moments."""

    sampling = Sampling(outer="domains")
    least_domains = 2

    def __init__(self, model: SplitModel, *, gamma: float) -> None:
        super().__init__(model)
        self._gamma = gamma

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        """Return CE + γ · the mean over pairs of domains of the differences of their moments."""
        features, logits = features_and_logits(model, batch.x)
        return F.cross_entropy(logits, batch.y) + self._gamma * coral(features, batch.domain)
