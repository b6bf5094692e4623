"""All that a training needs."""

from dataclasses import dataclass

from cicf.data.clustering import Clustering
from cicf.data.protocol import Split
from cicf.data.sampling import Sizes
from cicf.data.transforms import Transform
from cicf.method import Method
from cicf.models.split import SplitModel
from cicf.results.record import Parameters, Setup
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
    epochs: int
    evaluates_every: int
    log_every: int
    keeps_epochs: bool
    seed: int
    setup: Setup

    def is_evaluated(self, epoch: int) -> bool:
        """Tell whether the network is evaluated after an epoch, counted from 1; the last is."""
        return epoch % self.evaluates_every == 0 or epoch == self.epochs
