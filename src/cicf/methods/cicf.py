"""CICF: the virtual step of a batch that was clustered and then sampled. No domain labels."""

from dataclasses import replace
from typing import ClassVar, Literal

from pydantic import SerializeAsAny

from cicf.core import ConfigError
from cicf.data.loader import Evaluated
from cicf.data.samplers import Rounding, Scheme
from cicf.data.sampling import Sampling
from cicf.method import About, Given, LossMethod, Method, MethodConfig
from cicf.virtual_step import VirtualStepConfig, VirtualStepMethod


class CicfConfig(VirtualStepConfig):
    """Minimises the loss of a batch where a virtual step of another, clustered one leads."""

    about: ClassVar[About] = About(reference="Li et al., 2021", order=2, cost=6.0)
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
    base: SerializeAsAny[MethodConfig] | None = None
    """The method whose loss is taken in all passes, by name; None for the cross-entropy."""

    def build(self, given: Given) -> "Cicf":
        """Return CICF on this model."""
        return Cicf(self, given, None if self.base is None else self.base.build(given))


class Cicf(VirtualStepMethod):
    """Draws one inner batch from the clusters and one outer batch."""

    def __init__(self, config: CicfConfig, given: Given, base: Method | None) -> None:
        if base is None:
            super().__init__(config, given)
        elif isinstance(base, LossMethod) and len(base.turns) == 1 and not base.phases:
            super().__init__(config, given, loss=base)
        else:
            name = "" if config.base is None else config.base.name
            raise ConfigError(
                f"method.base={name!r} is more than a loss of one batch, so it cannot be taken "
                "inside of a virtual step; choose a method with a loss, such as 'mixstyle'"
            )
        self.base = base
        self.sampling = Sampling(
            inner=config.sampling, scheme=config.scheme, rounding=config.rounding
        )
        if base is not None:
            self.sampling = replace(self.sampling, outer=base.sampling.outer)
            self.least_domains = base.least_domains

    @property
    def needs_domains(self) -> bool:
        """Tell whether the loss inside needs to know where images come from."""
        return self.base is not None and self.base.needs_domains

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Let the loss inside act."""
        if self.base is not None:
            self.base.before_epoch(epoch, images)

    def after_step(self) -> None:
        """Count the step, and let the loss inside act."""
        super().after_step()
        if self.base is not None:
            self.base.after_step()
