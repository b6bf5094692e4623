"""Methods that take virtual steps: on every task of a draw, or as they see fit."""

import math
from abc import ABC
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor, nn

from cicf.core import DataError
from cicf.core.batch import chunks
from cicf.core.draw import Draw, Samples
from cicf.core.pace import Pace
from cicf.intervention import Intervention, Terms
from cicf.intervention.objective import BatchNorm, LossFunction
from cicf.intervention.step import StateDict
from cicf.method import Given, Logged, Method, MethodConfig, cross_entropy


class VirtualStepConfig(MethodConfig, ABC):
    """Holds the options of a method that takes virtual steps."""

    alpha: NonNegativeFloat = 0.05
    """α, the length of the virtual step."""
    alpha_ramp: NonNegativeInt = 0
    """Epochs in which α grows linearly from 0, step by step."""
    alpha_schedule: Literal["constant", "cosine"] = "constant"
    """How α changes from epoch to epoch: not, or to 0 at the end, as β does with `cosine`."""
    max_step_ratio: PositiveFloat = 0.01
    """The safeguard: α of a step is lowered until ‖α g†‖ / ‖θ‖ is at most this; `inf` for none."""
    order: Literal[1, 2] = 2
    """2 for the exact gradient, 1 to leave the second derivative out, which wants the safeguard."""
    batch_norm: BatchNorm = "batch"
    """Statistics that batch norm uses in the virtual step: `batch`, `running` or `frozen`."""
    chunk: PositiveInt | Literal["auto"] | None = "auto"
    """Images a pass takes at a time; None for all at once, `auto` for what fits into memory."""
    keeps_graphs: bool | None = None
    """Whether to keep graphs instead of computing them again, which is faster and takes memory."""
    curvature: PositiveFloat = 1.0
    """The part of the inner batch that the second derivative is taken of; 1 is exact."""

    def intervention(
        self, model: nn.Module, h: tuple[str, ...], loss: LossFunction = cross_entropy
    ) -> Intervention:
        """Return the step with these options."""
        return Intervention(
            model,
            h=h,
            alpha=self.alpha,
            order=self.order,
            chunk=self.chunk,
            loss=loss,
            batch_norm=self.batch_norm,
            keeps_graphs=self.keeps_graphs,
            curvature=self.curvature,
            max_step_ratio=self.max_step_ratio,
        )

    def alpha_at(self, step: int, given: Given) -> float:
        """Return α of a step, counted from 0."""
        ramp = self.alpha_ramp * given.steps_per_epoch
        alpha = self.alpha * min(1.0, (step + 1) / ramp) if ramp else self.alpha
        if self.alpha_schedule == "cosine":
            epoch = step // given.steps_per_epoch
            alpha *= (1 + math.cos(math.pi * epoch / given.epochs)) / 2
        return alpha


class InterventionMethod(Method, ABC):
    """Holds the exact step of `Intervention` with its α, its pace and θ†, and leaves open what the
    step is taken on.
    """

    steps_taken: Tensor

    def __init__(
        self, config: VirtualStepConfig, given: Given, loss: LossFunction = cross_entropy
    ) -> None:
        super().__init__(given.model)
        self._config, self._given = config, given
        self._step = config.intervention(given.model, given.model.h, loss)
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.int64))

    def after_step(self) -> None:
        """Count the step, since α may depend on how many there were."""
        self.steps_taken += 1

    @property
    def pace(self) -> Pace | None:
        """Return how a step goes through its batch, once the first has been taken."""
        return self._step.pace

    def keep_pace(self, pace: Pace) -> None:
        """Go on as an earlier part of the run did, so that the last bits are the same."""
        self._step.pace = pace

    @property
    def seconds(self) -> Mapping[str, float]:
        """Return the time of all steps so far by pass."""
        return self._step.seconds

    def theta_dagger(self, batches: Iterable[Samples]) -> StateDict | None:
        """Return the model's state at θ† = θ − α g†, g† over all these batches (Eq. 9).

        α is that of the step before.
        """
        self._prepare(max(0, int(self.steps_taken) - 1))
        return self._step.theta_dagger(batches)

    def _prepare(self, step: int) -> None:
        """Set what differs from step to step: α, and whether the loss at θ is to be known."""
        self._step.alpha = self._config.alpha_at(step, self._given)
        self._step.measures_before = self.is_logged


class VirtualStepMethod(InterventionMethod, ABC):
    """Takes the exact step of `Intervention` on every task of a draw, and averages over tasks.

    A draw of one task, whose inner batch was clustered and then sampled, makes it CICF; a draw with
    a task for each domain makes it MAML. Nothing else tells the two apart.
    """

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the mean over tasks of the gradient of L_CICF (Eq. 10 and 11)."""
        assert draw.inner is not None
        self._prepare(int(self.steps_taken))
        share = 1 / draw.tasks
        terms = [
            self._step.backward(inner, outer, scale=share)
            for inner, outer in zip(
                chunks(draw.inner, len(draw.inner.y) // draw.tasks),
                chunks(draw.outer, len(draw.outer.y) // draw.tasks),
                strict=True,
            )
        ]
        return mean_terms(terms)


def meta_split(batch: Samples) -> tuple[Samples, Samples]:
    """Return a batch without one of its domains, and that domain's part: meta-train, meta-test.

    Which domain is drawn from torch's global generator, each alike.
    """
    domains = batch.domain.unique()
    if len(domains) < 2:
        raise DataError(
            f"the images of a batch come from {len(domains)} domain, but one domain is held out "
            "of every batch; train on at least 2 source domains"
        )
    is_test = batch.domain == domains[int(torch.randint(len(domains), ()))]
    train, test = (Samples(*(field[which] for field in batch)) for which in (~is_test, is_test))
    return train, test


def mean_terms(terms: list[Terms]) -> Logged:
    """Return what the steps of a draw did, averaged over tasks; NaN for what was not measured."""
    names = {
        "loss": "outer_loss",
        "loss_at_theta": "outer_loss_before",
        "inner_loss": "inner_loss",
        "step_ratio": "step_ratio",
        "cosine": "cosine",
        "curvature_norm": "curvature_norm",
    }
    means: dict[str, float | Tensor] = {
        name: torch.stack([getattr(each, field) for each in terms]).mean()
        for name, field in names.items()
    }
    means["alpha"] = sum(each.alpha for each in terms) / len(terms)
    return means
