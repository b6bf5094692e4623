"""All that a training needs."""

from dataclasses import dataclass
from itertools import accumulate

from cicf.data.clustering import Clustering
from cicf.data.protocol import Split
from cicf.data.sampling import Sizes
from cicf.data.transforms import Transform
from cicf.method import Method, Phase
from cicf.models.split import SplitModel
from cicf.results.record import Parameters, Setup
from cicf.training.average import AverageConfig
from cicf.training.optim import OptimConfig


@dataclass(frozen=True, slots=True)
class Plan:
    """Holds all that a training needs, built and checked."""

    model: SplitModel
    method: Method
    deploy: Parameters
    split: Split
    transform: Transform
    clustering: Clustering | None
    sizes: Sizes
    optim: OptimConfig
    phases: tuple[Phase, ...]
    average: AverageConfig
    evaluates_every: int
    log_every: int
    keeps_epochs: bool
    seed: int
    setup: Setup

    @property
    def epochs(self) -> int:
        """Return the epochs of all phases."""
        return sum(phase.epochs for phase in self.phases)

    def phase_of(self, epoch: int) -> int:
        """Return the number of the phase that an epoch belongs to, both counted from 0."""
        ends = accumulate(phase.epochs for phase in self.phases)
        return next(number for number, end in enumerate(ends) if epoch < end)

    def is_evaluated(self, epoch: int) -> bool:
        """Tell whether the network is evaluated after an epoch, counted from 1; the last is."""
        own = epoch - (self.epochs - self.phases[-1].epochs)
        return own > 0 and (own % self.evaluates_every == 0 or epoch == self.epochs)

    def is_logged(self, step: int) -> bool:
        """Tell whether the terms of a step, counted from 1, are written down."""
        return step % self.log_every == 0 or step % self.setup.steps_per_epoch == 0
