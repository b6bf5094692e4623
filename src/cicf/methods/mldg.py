"""MLDG: one source domain is held out, and must profit from a step on the others."""

from contextlib import nullcontext
from typing import ClassVar, Literal

from jaxtyping import Float
from pydantic import NonNegativeFloat
from torch import Tensor

from cicf.core.draw import Draw, Samples
from cicf.core.modes import norms_resting
from cicf.core.replay import RandomSource
from cicf.data.sampling import Sampling
from cicf.method import About, Given, Logged, cross_entropy
from cicf.virtual_step import InterventionMethod, VirtualStepConfig, mean_terms, meta_split


class MldgConfig(VirtualStepConfig):
    """Minimises the loss of all source domains but one, and that of the one after a virtual step.

    The default of `alpha` is that of MAML here, so that the two differ in what they minimise. The
    authors' demonstration on fixed features has 0.5, on the sum over domains [code].
    """

    about: ClassVar[About] = About(
        reference="Li et al., AAAI 2018", needs_domains=True, order=2, norm_updates=(2, 0), cost=2.4
    )
    name: Literal["mldg"] = "mldg"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta", "theta_dagger"] = "theta"
    """Which parameters are stored as the model; MLDG as published keeps θ."""
    beta: NonNegativeFloat = 1.0
    """β, the weight of the meta-test loss after the virtual step [code]; 0 leaves it out."""

    def build(self, given: Given) -> "Mldg":
        """Return MLDG on this model."""
        return Mldg(self, given, beta=self.beta)


class Mldg(InterventionMethod):
    """Draws as many images of each source domain, and the one to hold out anew in every step."""

    sampling = Sampling(outer="domains")
    least_domains = 2

    def __init__(self, config: MldgConfig, given: Given, *, beta: float) -> None:
        super().__init__(config, given)
        self._beta = beta
        self._is_frozen = config.batch_norm == "frozen"

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of F(θ) + β G(θ − α ∇F(θ)), F meta-train and G meta-test."""
        self._prepare(int(self.steps_taken))
        train, test = meta_split(draw.outer)
        # The virtual step then draws the same masks: both are one forward in the original.
        with RandomSource([train.x.device]).unchanged():
            train_loss = self._backward_at_theta(train)
        if self._beta == 0:
            return {"loss": train_loss, "inner_loss": train_loss}
        terms = self._step.backward(train, test, scale=self._beta)
        return {
            **mean_terms([terms]),
            "loss": train_loss + self._beta * terms.outer_loss,
            "loss_at_theta": train_loss + self._beta * terms.outer_loss_before,
            "outer_loss": terms.outer_loss,
        }

    def _backward_at_theta(self, train: Samples) -> Float[Tensor, ""]:
        """Accumulate the gradient of F(θ), and return F(θ).

        Blocks of domains are of the same size, so the mean over images is that over domains.
        """
        with norms_resting(self.model) if self._is_frozen else nullcontext():
            loss = cross_entropy(self.model, train).mean()
        loss.backward()
        return loss.detach()
