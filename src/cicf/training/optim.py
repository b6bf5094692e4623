"""The optimiser and its schedule."""

import math
from collections.abc import Iterable
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import nn
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import ConstantLR, CosineAnnealingLR, LRScheduler, StepLR

from cicf.core.frozen import Frozen


class OptimConfig(Frozen):
    """Holds the options of the optimiser, which is SGD as in the paper."""

    lr: PositiveFloat = 0.01
    """β, the learning rate."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Momentum; the paper names none."""
    weight_decay: NonNegativeFloat = 5e-4
    """Weight decay; the paper names none."""
    schedule: Literal["constant", "cosine", "step"] = "cosine"
    """How β changes from epoch to epoch."""
    step_epochs: PositiveInt = 20
    """With `step`, epochs after which β is divided by ten, again and again."""
    clip: PositiveFloat = math.inf
    """The norm to which a larger gradient is scaled down; inf for none."""

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> Optimizer:
        """Return the optimiser for these parameters."""
        return SGD(
            list(parameters), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay
        )

    def scheduler(self, optimizer: Optimizer, epochs: int) -> LRScheduler:
        """Return the schedule, to be stepped after each epoch."""
        if self.schedule == "cosine":
            return CosineAnnealingLR(optimizer, T_max=epochs)
        if self.schedule == "step":
            return StepLR(optimizer, step_size=self.step_epochs, gamma=0.1)
        return ConstantLR(optimizer, factor=1.0, total_iters=0)
