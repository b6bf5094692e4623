"""The loop: draw, gradient, optimiser step; evaluation and checkpoints."""

from cicf.train.events import EpochEnded, Event, Started, Stepped
from cicf.train.machine import MachineConfig
from cicf.train.optim import OptimConfig
from cicf.train.trainer import Plan, Trainer

__all__ = [
    "EpochEnded",
    "Event",
    "MachineConfig",
    "OptimConfig",
    "Plan",
    "Started",
    "Stepped",
    "Trainer",
]
