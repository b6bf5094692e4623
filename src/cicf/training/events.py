"""What a training tells whoever watches it."""

from dataclasses import dataclass

from cicf.core.pace import Pace
from cicf.results.record import Evaluation, Setup


@dataclass(frozen=True, slots=True)
class Caching:
    """Says how many images have been decoded, of those that are kept on disk from now on."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Started:
    """Says that training begins, or goes on after `step` steps."""

    setup: Setup
    step: int
    total_steps: int


@dataclass(frozen=True, slots=True)
class Paced:
    """Says how steps go through their batches, when it was found out and when it changed."""

    pace: Pace


@dataclass(frozen=True, slots=True)
class Stepped:
    """Says what a step did."""

    step: int
    epoch: int
    terms: dict[str, float]


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """Says what θ and θ† score on source validation after an epoch."""

    step: int
    epoch: int
    validation: Evaluation
    is_best: bool


Event = Caching | Started | Paced | Stepped | EpochEnded
