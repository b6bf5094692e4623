"""ERM: the loss of a random batch, the baseline of every table."""

from typing import ClassVar, Literal

from jaxtyping import Float
from torch import Tensor

from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.method import About, Given, LossMethod, MethodConfig, cross_entropy
from cicf.models.split import SplitModel


class ErmConfig(MethodConfig):
    """Trains on the mean cross-entropy of a random batch (empirical risk minimisation)."""

    about: ClassVar[About] = About(reference="Vapnik, 1991", cost=1.0)
    name: Literal["erm"] = "erm"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """Plain training has no virtual step, so θ is the model."""

    def build(self, given: Given) -> "Erm":
        """Return plain training."""
        return Erm(given.model)


class Erm(LossMethod):
    """Minimises the cross-entropy."""

    sampling = Sampling()

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, " m"]:
        """Return the cross-entropy of each sample."""
        return cross_entropy(model, batch)
