"""Methods with two phases that differ in all that a phase can change."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from cicf.core.draw import Draw, Samples
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.method import Given, Logged, LossMethod, MethodConfig, Phase, Turn, cross_entropy
from cicf.models import SplitModel

FIRST = 2
"""Epochs of the first phase."""


class GoingOnConfig(MethodConfig):
    """Has a second phase that goes on with the network of the first."""

    is_fresh: ClassVar[bool] = False

    def build(self, given: Given) -> "Phased":
        return Phased(given, is_fresh=self.is_fresh)


class FreshConfig(GoingOnConfig):
    """Has a second phase that starts from the first weights."""

    is_fresh: ClassVar[bool] = True


class Phased(LossMethod):
    """Trains in two turns and on batches by domain at first; then in one, on random batches.

    It logs what a test needs to see from outside: `network`, a sum over all of the network's state
    before the step, and `w`, a parameter of its own whose gradient is 1 in every turn.
    """

    phase: Tensor

    def __init__(self, given: Given, *, is_fresh: bool) -> None:
        super().__init__(given.model)
        self._epochs, self._is_fresh = given.epochs, is_fresh
        self.w = nn.Parameter(torch.zeros(1))
        self.register_buffer("phase", torch.tensor(-1))

    @property
    def sampling(self) -> Sampling:  # type: ignore[override]
        return Sampling() if self.phase == 1 else Sampling(outer="domains")

    @property
    def phases(self) -> tuple[Phase, ...]:
        second = Phase("second", self._epochs, starts_fresh=self._is_fresh)
        return (Phase("first", FIRST), second)

    @property
    def turns(self) -> tuple[Turn, ...]:
        assert self.phase >= 0
        if self.phase == 1:
            return super().turns
        network = tuple(self.model.parameters())
        return (Turn("network", network, self.backward), Turn("own", (self.w,), self._own))

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        del images
        self.phase.fill_(int(epoch >= FIRST))

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch) + self.w

    def backward(self, draw: Draw) -> Logged:
        state = self.model.state_dict().values()
        seen = torch.stack([value.double().sum() for value in state]).sum()
        return {**super().backward(draw), "network": seen, "w": self.w.item()}

    def _own(self, draw: Draw) -> Logged:
        del draw
        self.w.sum().backward()
        return {}
