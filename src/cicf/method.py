"""What a method is: one draw in, one gradient out, with the terms to log."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from cicf.core.batch import chunks
from cicf.core.draw import Draw, Samples
from cicf.core.frozen import Frozen
from cicf.core.pace import Pace
from cicf.data.sampling import Sampling
from cicf.intervention import Intervention, Terms
from cicf.intervention.objective import BatchNorm
from cicf.intervention.step import StateDict
from cicf.models.split import SplitModel

Logged = Mapping[str, float | Tensor]
"""The terms of a step by name; each is a number, or a tensor that holds one."""
Deploy = Literal["theta", "theta_dagger"]
"""Which parameters are the model: where training stands, or where the virtual step leads."""


class Method(nn.Module, ABC):
    """Turns a draw into a gradient; its own parameters and buffers are trained and saved with it.

    `sampling` says what it draws. Of the terms that it logs, `loss` is the one it minimises.
    """

    sampling: Sampling

    @abstractmethod
    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient into `.grad`, as `loss.backward()` would, and return terms."""

    def before_epoch(self, epoch: int) -> None:
        """Act before an epoch, counted from 0; not called again when a run resumes within one."""

    def after_step(self) -> None:
        """Act after the optimiser's step."""

    @property
    def pace(self) -> Pace | None:
        """Return how a step goes through its batch; None if that is not known, or not chosen."""
        return None

    def keep_pace(self, pace: Pace) -> None:
        """Go on as an earlier part of the run did."""
        del pace

    @property
    def seconds(self) -> Mapping[str, float]:
        """Return the time of all steps so far by what they consist of; empty if not measured."""
        return {}

    def theta_dagger(self, batches: Iterable[Samples]) -> StateDict | None:
        """Return the model's state at θ†, g† taken over these batches; None if there is no θ†."""
        del batches
        return None


class MethodConfig(Frozen, ABC):
    """Holds the options of a method and builds it."""

    name: str
    """The method, as `cicf methods` lists it."""
    deploy: Deploy = "theta"
    """Which parameters are stored as the model."""

    @abstractmethod
    def build(self, model: SplitModel) -> Method:
        """Return the method for a model that is about to be trained."""


class LossMethod(Method, ABC):
    """Is a method that is a loss of the outer batch, and nothing more."""

    def __init__(self, model: SplitModel) -> None:
        super().__init__()
        # In a tuple, or the model would be a part of the method and be saved twice.
        self._model = (model,)

    @abstractmethod
    def loss(self, model: nn.Module, batch: Samples) -> Float[Tensor, " m"] | Float[Tensor, ""]:
        """Return the loss of each sample, or of the batch; it must not change any state."""

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the mean loss of the outer batch."""
        loss = self.loss(self._model[0], draw.outer).mean()
        loss.backward()
        return {"loss": loss.detach()}


class VirtualStepConfig(MethodConfig, ABC):
    """Holds the options of a method that takes virtual steps."""

    alpha: NonNegativeFloat = 0.05
    """α, the length of the virtual step."""
    max_step_ratio: PositiveFloat = 0.01
    """The safeguard: α of a step is lowered until ‖α g†‖ / ‖θ‖ is at most this; `inf` for none."""
    order: Literal[1, 2] = 2
    """2 for the exact gradient, 1 to leave the second derivative out."""
    batch_norm: BatchNorm = "batch"
    """Statistics that batch norm uses in the virtual step: `batch`, `running` or `frozen`."""
    chunk: PositiveInt | Literal["auto"] | None = "auto"
    """Images a pass takes at a time; None for all at once, `auto` for what fits into memory."""
    keeps_graphs: bool | None = None
    """Whether to keep graphs instead of computing them again, which is faster and takes memory."""
    curvature: PositiveFloat = 1.0
    """The part of the inner batch that the second derivative is taken of; 1 is exact."""

    def intervention(self, model: SplitModel) -> Intervention:
        """Return the step with these options."""
        return Intervention(
            model,
            h=model.h,
            alpha=self.alpha,
            order=self.order,
            chunk=self.chunk,
            loss=cross_entropy,
            batch_norm=self.batch_norm,
            keeps_graphs=self.keeps_graphs,
            curvature=self.curvature,
            max_step_ratio=self.max_step_ratio,
        )


class VirtualStepMethod(Method, ABC):
    """Takes the exact step of `Intervention` on every task of a draw, and averages over tasks.

    A draw of one task, whose inner batch was clustered and then sampled, makes it CICF; a draw with
    a task for each domain makes it MAML. Nothing else tells the two apart.
    """

    def __init__(self, step: Intervention) -> None:
        super().__init__()
        self._step = step

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the mean over tasks of the gradient of L_CICF (Eq. 10 and 11)."""
        assert draw.inner is not None
        share = 1 / draw.tasks
        terms = [
            self._step.backward(inner, outer, scale=share)
            for inner, outer in zip(
                chunks(draw.inner, len(draw.inner.y) // draw.tasks),
                chunks(draw.outer, len(draw.outer.y) // draw.tasks),
                strict=True,
            )
        ]
        return _mean(terms)

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
        """Return the model's state at θ† = θ − α g†, g† over all these batches (Eq. 9)."""
        return self._step.theta_dagger(batches)


def cross_entropy(model: nn.Module, batch: Samples) -> Float[Tensor, " m"]:
    """Return the cross-entropy of each sample."""
    return F.cross_entropy(model(batch.x), batch.y, reduction="none")


def _mean(terms: list[Terms]) -> Logged:
    """Return what the steps of a draw did, averaged over tasks."""
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
