"""The average of weights within a run: when it is fed, and how it becomes the network."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from cicf.core.replay import RandomSource
from cicf.results.folder import RunFolder
from cicf.training.average import WeightAverage
from cicf.training.evaluate import mean_loss, refresh_batch_norm
from cicf.training.plan import Plan

SEGMENTS = 50
"""Evaluations of a run, unless the steps between them are given."""


class Averaging:
    """Averages the weights of the last phase, of the network and of what the method owns.

    Does nothing for a run without an average.
    """

    def __init__(self, plan: Plan, device: torch.device, random: RandomSource) -> None:
        self._plan, self._device, self._random = plan, device, random
        steps = plan.setup.steps_per_epoch
        self._first_step = (plan.epochs - plan.phases[-1].epochs) * steps
        every = plan.average.every or max(1, plan.phases[-1].epochs * steps // SEGMENTS)
        is_on = plan.average.name == "swad"
        self._average = WeightAverage(plan.average, every=every) if is_on else None

    def after_step(self, step: int) -> None:
        """Take in the weights after a step."""
        if self._average is not None and step > self._first_step:
            self._average.after_step(self._weights(), self._loss)

    def finish(self, folder: RunFolder) -> None:
        """Put the average into the network, with batch norm's statistics, and note what it is of.

        Batch norm that trains gets the statistics of one pass through the training images.
        """
        if self._average is None:
            return
        plan, note = self._plan, self._average.sentence(self._first_step)
        if (average := self._average.average()) is not None:
            with torch.no_grad():
                for parameter, value in zip(self._weights(), average, strict=True):
                    parameter.copy_(value)
            if refresh_batch_norm(
                plan.model,
                plan.split.train,
                plan.transform,
                size=plan.sizes.outer,
                device=self._device,
            ):
                note += "; batch norm's statistics are those of a pass through the training images"
        setup = folder.setup()
        if note not in setup.notes:
            folder.write_setup(setup.model_copy(update={"notes": (*setup.notes, note)}))

    def state(self) -> dict[str, Any]:
        """Return all that is needed to go on."""
        return {} if self._average is None else {"average": self._average.state()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` returned."""
        if self._average is not None:
            self._average.restore(state["average"], self._device)

    def _weights(self) -> list[nn.Parameter]:
        return [*self._plan.model.parameters(), *self._plan.method.parameters()]

    def _loss(self) -> float:
        plan = self._plan
        with self._random.unchanged():
            return mean_loss(plan.model, plan.split.validation, plan.transform, device=self._device)
