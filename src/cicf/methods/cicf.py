"""CICF: the virtual step of a batch that was clustered and then sampled. No domain labels."""

from typing import Literal

from cicf.data.samplers import Rounding, Scheme
from cicf.data.sampling import Sampling
from cicf.method import VirtualStepConfig, VirtualStepMethod
from cicf.models.split import SplitModel


class CicfConfig(VirtualStepConfig):
    """Minimises the loss of a batch where a virtual step of another, clustered one leads."""

    name: Literal["cicf"] = "cicf"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta", "theta_dagger"] = "theta_dagger"
    """Which parameters are stored as the model; training minimises the loss at θ†."""
    sampling: Literal["clusters", "class-weighted", "random"] = "clusters"
    """Where the inner batch comes from: clusters, or what the paper compares them with."""
    scheme: Scheme = "proportional"
    """`proportional`: N_k = M P(K_k); `balanced`: N_k = M / K†, the outer batch alike."""
    rounding: Rounding = "systematic"
    """`systematic`: at random with E[N_k] = M P(K_k); `fixed`: by the largest remainder."""

    def build(self, model: SplitModel) -> "Cicf":
        """Return CICF on this model."""
        return Cicf(self, model)


class Cicf(VirtualStepMethod):
    """Draws one inner batch from the clusters and one outer batch."""

    def __init__(self, config: CicfConfig, model: SplitModel) -> None:
        super().__init__(config.intervention(model))
        self.sampling = Sampling(
            inner=config.sampling, scheme=config.scheme, rounding=config.rounding
        )
