"""SWAD: the average of the weights of all steps in a valley of the source validation loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Literal, NamedTuple

import torch
from pydantic import NonNegativeFloat, PositiveInt, model_validator
from torch import Tensor, nn

from cicf.core import ConfigError
from cicf.core.frozen import Frozen


class AverageConfig(Frozen):
    """Says whether weights are averaged over steps, and over which."""

    name: Literal["none", "swad"] = "none"
    """`swad` stores the average over a valley of the source validation loss instead of the last
    weights; works with every method."""
    every: PositiveInt | None = None
    """q, the steps between evaluations of the source validation loss; None for a fiftieth of the
    run, which is what the original has: 100 of 5000 [code]."""
    start: PositiveInt = 3
    """N_s: the average starts at the first of so many losses that is the least of them [code]."""
    end: PositiveInt = 6
    """N_e: it ends before so many losses in a row that lie above the threshold [code]."""
    tolerance: NonNegativeFloat = 0.3
    """r: the threshold is 1 + r times the mean of the N_s losses [code]; 0.2 on VLCS there."""

    @model_validator(mode="after")
    def _ends_no_sooner_than_it_starts(self) -> "AverageConfig":
        if self.end < self.start:
            raise ConfigError(
                f"average.end={self.end} must be at least average.start={self.start}: the losses "
                "that start an average must not end it; make it larger"
            )
        return self


class Valley(NamedTuple):
    """Says which segments of a run are averaged, counted from 0."""

    first: int
    last: int
    """The last that belongs to it as far as is known."""
    has_ended: bool


def find_valley(losses: Sequence[float], rule: AverageConfig) -> Valley | None:
    """Return the valley in the losses at the ends of segments; None if none has begun.

    It begins at the first loss that is the least of the N_s from it on. The threshold is 1 + r
    times their mean, and it ends before the first N_e losses in a row that lie above that. Where
    the run ends before, so does the valley, without the losses above the threshold at its end.
    """
    windows = (losses[first : first + rule.start] for first in range(len(losses) - rule.start + 1))
    found = next((each for each in enumerate(windows) if each[1][0] <= min(each[1])), None)
    if found is None:
        return None
    first, window = found
    threshold = (1 + rule.tolerance) * fmean(window)
    last = first
    for place in range(first, len(losses)):
        if losses[place] <= threshold:
            last = place
        if place - last == rule.end:
            return Valley(first, last, has_ended=True)
    return Valley(first, last, has_ended=False)


@dataclass
class Mean:
    """Is a mean of weights, and of how many."""

    values: list[Tensor] = field(default_factory=list)
    count: int = 0

    def add(self, values: Sequence[Tensor], count: int = 1) -> None:
        """Take in the mean of some more."""
        if not count:
            return
        if not self.count:
            self.values = [value.detach().clone() for value in values]
        else:
            share = count / (self.count + count)
            for own, value in zip(self.values, values, strict=True):
                own.lerp_(value.detach(), share)
        self.count += count


class WeightAverage:
    """Averages weights over the steps of a valley that shows only afterwards.

    Before one has begun, the means of the last N_s segments are kept; from then on, that of the
    valley, and that of the segments since, which belong to it only if the loss comes back down.
    """

    def __init__(self, rule: AverageConfig, *, every: int) -> None:
        self._rule, self._every = rule, every
        self._losses: list[float] = []
        self._segment, self._inside, self._beyond = Mean(), Mean(), Mean()
        self._recent: list[Mean] = []

    @property
    def valley(self) -> Valley | None:
        """Return which segments are averaged; None if no valley has begun."""
        return find_valley(self._losses, self._rule)

    def after_step(self, weights: Sequence[nn.Parameter], loss: Callable[[], float]) -> None:
        """Take in the weights after a step; `loss` is asked for where a segment ends."""
        valley = self.valley
        if valley is not None and valley.has_ended:
            return
        self._segment.add(weights)
        if self._segment.count == self._every:
            self._losses.append(loss())
            self._end_segment(is_inside=valley is not None)

    def average(self) -> list[Tensor] | None:
        """Return the average of the valley, or of the last segment; None if there was none."""
        if self._inside.count:
            return self._inside.values
        return self._recent[-1].values if self._recent else None

    def sentence(self, first_step: int) -> str:
        """Return what was averaged; `first_step` is how many steps there were before."""
        if (valley := self.valley) is not None:
            first = first_step + valley.first * self._every + 1
            last = first_step + (valley.last + 1) * self._every
            return f"the last weights are the average of steps {first} to {last} (SWAD)"
        if self._recent:
            last = first_step + len(self._losses) * self._every
            return (
                "no source validation loss was the least of itself and the next "
                f"{self._rule.start - 1}, so that the last weights are, as in the original, the "
                f"average of the last segment, steps {last - self._every + 1} to {last} (SWAD)"
            )
        return (
            f"the run has less than the {self._every} steps of a segment, so that nothing was "
            "averaged (SWAD); make average.every smaller"
        )

    def state(self) -> dict[str, Any]:  # Any: as a checkpoint holds it
        """Return all that is needed to go on."""
        means = {"segment": self._segment, "inside": self._inside, "beyond": self._beyond}
        kept = {name: (mean.values, mean.count) for name, mean in means.items()}
        recent = [(mean.values, mean.count) for mean in self._recent]
        return {**kept, "recent": recent, "losses": list(self._losses)}

    def restore(self, state: dict[str, Any], device: torch.device) -> None:
        """Go on from what `state` returned."""

        def mean(saved: tuple[list[Tensor], int]) -> Mean:
            return Mean([value.to(device) for value in saved[0]], saved[1])

        self._segment, self._inside = mean(state["segment"]), mean(state["inside"])
        self._beyond = mean(state["beyond"])
        self._recent = [mean(each) for each in state["recent"]]
        self._losses = list(state["losses"])

    def _end_segment(self, *, is_inside: bool) -> None:
        valley = self.valley
        self._recent = [*([] if is_inside else self._recent), self._segment][-self._rule.start :]
        self._segment = Mean()
        if valley is None:
            return
        for place, mean in enumerate(self._recent, len(self._losses) - len(self._recent)):
            self._beyond.add(mean.values, mean.count)
            if place <= valley.last:
                self._inside.add(self._beyond.values, self._beyond.count)
                self._beyond = Mean()
        self._recent = []
