"""The loop: draw, gradient, optimiser step; evaluation and checkpoints."""

from cicf.training.average import AverageConfig
from cicf.training.events import Caching, EpochEnded, Event, Paced, Started, Stepped
from cicf.training.machine import MachineConfig
from cicf.training.optim import OptimConfig
from cicf.training.plan import Plan
from cicf.training.trainer import Trainer

__all__ = [
    "AverageConfig",
    "Caching",
    "EpochEnded",
    "Event",
    "MachineConfig",
    "OptimConfig",
    "Paced",
    "Plan",
    "Started",
    "Stepped",
    "Trainer",
]
