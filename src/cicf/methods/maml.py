"""MAML with the source domains as tasks: the paper's "ERM+MAML", Eq. 11. Needs domain labels."""

from typing import ClassVar, Literal

from cicf.data.sampling import Sampling
from cicf.data.tasks import Tasks
from cicf.method import About, Given
from cicf.virtual_step import VirtualStepConfig, VirtualStepMethod


class MamlConfig(VirtualStepConfig):
    """Takes a virtual step for each source domain and minimises the mean loss after them."""

    about: ClassVar[About] = About(
        reference="Finn et al., ICML 2017",
        needs_domains=True,
        order=2,
        norm_updates=(0, 1),
        cost=6.5,
    )
    name: Literal["maml"] = "maml"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta", "theta_dagger"] = "theta"
    """Which parameters are stored as the model; MAML as published keeps θ."""
    tasks: Tasks = "within"
    """`within`: both batches of a task from its domain; `cross`: the inner one from the others."""

    def build(self, given: Given) -> "Maml":
        """Return MAML on this model."""
        return Maml(self, given)


class Maml(VirtualStepMethod):
    """Draws M/T and M^l/T images for each of the T source domains."""

    def __init__(self, config: MamlConfig, given: Given) -> None:
        super().__init__(config, given)
        self.sampling = Sampling(inner=config.tasks)
