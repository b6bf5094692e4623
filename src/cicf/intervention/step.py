"""The CICF step for a loop of one's own: any module, any loss, any optimiser, any device."""

import gc
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from jaxtyping import Int
from torch import Tensor, nn

from cicf.core import ConfigError, DataError
from cicf.core.batch import Batch, batch_size, devices
from cicf.core.memory import is_out_of_memory, keep_memory
from cicf.core.pace import Pace
from cicf.core.ranks import Ranks
from cicf.core.replay import RandomSource
from cicf.intervention.accumulation import accumulate
from cicf.intervention.losses import cross_entropy_per_sample
from cicf.intervention.objective import BatchNorm, LossFunction, Objective
from cicf.intervention.pace import Pacing
from cicf.intervention.refusals import (
    check_cut,
    check_graph,
    check_mode,
    check_options,
    check_reached,
    check_second_derivative,
    check_wrappers,
)
from cicf.intervention.sides import Sides
from cicf.intervention.terms import Terms, terms_of
from cicf.maths.hypergradient import (
    Hypergradient,
    VirtualStep,
    hypergradient,
    mean_loss,
)
from cicf.maths.intervention import Parameters
from cicf.maths.moving import bounded_alpha, leaves, moved
from cicf.maths.shares import Gradients, Setting, plus

StateDict = dict[str, Any]
"""Tensors by name, as in torch; a module's extra state in it may be anything."""


class Intervention:
    """Writes the gradient of L_CICF to `.grad`, where `loss.backward()` would write that of a loss.

    `h` names the modules or parameters before Z; all others are θ and take the virtual step. With
    a number as `chunk`, memory does not grow with M: each pass goes through the batch in pieces,
    and pass 3 recomputes pass 1 unless `keeps_graphs`; None takes batches whole, and `auto` what is
    fastest in the memory that is free before the first step, which `pace` then tells. A step that
    runs out of memory is taken again in smaller pieces. `curvature` < 1 makes pass 3 of a
    stratified part of the inner batch: unbiased, cheaper, not exact. `max_step_ratio` lowers α in
    each step so that ‖α g†‖ / ‖θ‖ stays below it; without, there is no safeguard: α is what you
    give it.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        h: Sequence[str] = (),
        alpha: float,
        order: Literal[1, 2] = 2,
        chunk: int | Literal["auto"] | None = "auto",
        loss: LossFunction = cross_entropy_per_sample,
        batch_norm: BatchNorm = "batch",
        keeps_graphs: bool | None = None,
        curvature: float = 1.0,
        max_step_ratio: float = math.inf,
        measures_before: bool = True,
        generators: Sequence[torch.Generator] = (),
        group: torch.distributed.ProcessGroup | None = None,
    ) -> None:
        check_options(
            model=model,
            loss=loss,
            order=order,
            chunk=chunk,
            batch_norm=batch_norm,
            curvature=curvature,
            max_step_ratio=max_step_ratio,
        )
        check_wrappers(model, order)
        self.model, self.h, self.order = model, check_cut(model, h), order
        self.alpha = alpha
        self._objective = Objective(model, loss, batch_norm)
        self._objective.split(self.h)
        self._curvature, self._max_step_ratio = curvature, max_step_ratio
        self._pacing = Pacing(self._objective, self.h, order, chunk, keeps_graphs)
        self.measures_before = measures_before
        self._inspects = order == 2
        self._generators, self._group = tuple(generators), group
        self._seconds: dict[str, float] = {}

    @property
    def alpha(self) -> float:
        """α of the virtual step; it may be set between steps."""
        return self._alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        if not isinstance(value, int | float) or not (math.isfinite(value) and value >= 0):
            raise ConfigError(
                f"alpha={value!r} must be a finite number, 0 (plain training) or more"
            )
        self._alpha = float(value)

    @property
    def pace(self) -> Pace | None:
        """How steps go through their batches; None until the first, where it is `auto`."""
        return self._pacing.pace

    @pace.setter
    def pace(self, value: Pace) -> None:
        self._pacing.pace = value

    @property
    def seconds(self) -> dict[str, float]:
        """The time of all steps so far by pass; empty on devices, which do not wait for a pass."""
        is_waited_for = all(p.device.type == "cpu" for p in self._objective.parameters())
        return dict(self._seconds) if is_waited_for else {}

    def backward(
        self,
        inner: Batch,
        outer: Batch,
        *,
        scale: float | Tensor = 1.0,
        strata: Int[Tensor, " m"] | None = None,
    ) -> Terms:
        """Accumulate the gradient of L_CICF into `.grad`; then call `optimizer.step()`.

        `scale` multiplies the outer loss: `scaler.scale(torch.ones(()))` of a GradScaler. `strata`
        are the clusters of the inner samples, of each of which `curvature` takes a part.
        When it raises, `.grad`, buffers and random state are as they were.
        """
        check_mode()
        while True:
            pace = self._pace_for(inner)
            try:
                return self._taken(inner, outer, scale, strata, pace)
            except BaseException as error:
                check_second_derivative(error)
                if not (is_out_of_memory(error) or self._objective.is_misled(error)):
                    raise
                # Without its traceback, which holds on to the tensors of the step.
                failure = error.with_traceback(None)
            gc.collect()
            if not is_out_of_memory(failure):
                self._objective.leave_to_torch()
            elif Ranks.of(self._group).count > 1 or not self._can_be_cut(inner, pace):
                raise failure  # other ranks wait for this step as it was begun
            else:
                self.pace = pace.halved(batch_size(inner))

    def _taken(
        self,
        inner: Batch,
        outer: Batch,
        scale: float | Tensor,
        strata: Int[Tensor, " m"] | None,
        pace: Pace,
    ) -> Terms:
        theta, phi = self._objective.split(self.h)
        setting = self._setting(inner, outer, ranks=Ranks.of(self._group), pace=pace)
        sides, ranks = self._sides(pace), setting.ranks
        written: dict[Tensor, Tensor] = {}
        before = None
        if self.measures_before:
            before = sides.outer(outer, written=None, scale=scale, ranks=ranks)
        start = setting.random.capture()
        try:
            # With α = 0 the gradient is that of the outer batch, and torch's to the bit.
            with self._objective.lean(self.alpha != 0):
                result = hypergradient(
                    sides.inner(inner, strata=strata, ranks=ranks, is_moved=self.alpha != 0),
                    sides.outer(outer, written=written, scale=scale, ranks=ranks),
                    theta=self._objective.leaves(theta),
                    phi=self._objective.leaves(phi),
                    alpha=self.alpha,
                    order=self.order,
                    setting=setting,
                    before=before,
                    max_step_ratio=self._max_step_ratio,
                )
            check_reached(result.lengths.g_reaches, "inner")
            check_reached(any(g is not None for g in (*result.theta, *result.phi)), "outer")
            terms = self._terms(result, theta, scale, ranks)
        except BaseException:
            setting.random.restore(start)
            raise
        self._inspects = False
        accumulate({**theta, **phi}, [*result.theta, *result.phi])
        self._objective.write(written)
        return terms

    def theta_dagger(self, batches: Iterable[Batch]) -> StateDict:
        """Return the model's state at θ† = θ − α g†, with g† over all these batches (Eq. 9).

        This is the model to keep: Eq. 10 is minimised at θ†, not at θ. Give it the whole training
        set, shuffled if batch norm uses batch statistics, and the model in the mode it was trained
        in. The model itself is left alone; `model.load_state_dict` takes what is returned.
        """
        theta, _ = self._objective.split(self.h)
        g = self._gradients(batches)
        alpha = bounded_alpha(self.alpha, g, theta, max_step_ratio=self._max_step_ratio)
        values = moved(theta, g, alpha)
        state = {name: _copied(value) for name, value in self.model.state_dict().items()}
        names = {parameter: name for name, parameter in theta.items()}
        for alias, parameter in self.model.named_parameters(remove_duplicate=False):
            if parameter in names and alias in state:
                state[alias] = _copied(values[names[parameter]])
        return state

    def inner_losses(self, batches: Sequence[Batch]) -> Callable[[float], float]:
        """Return L̃(θ − α g†) over all these batches as a function of α, g† being theirs too.

        Random draws are the same at every α, so that only the step tells two values apart.
        """
        g = self._gradients(batches)
        theta, phi = map(leaves, self._objective.split(self.h))

        def loss(alpha: float) -> float:
            setting = self._setting(ranks=Ranks(), pace=Pace())
            place = moved(theta, g, alpha)
            with setting.random.unchanged():
                sides = [self._sides(self._pace_for(batch)).summed(batch) for batch in batches]
                sums = [mean_loss(side, place, phi, setting=setting) for side in sides]
            count = torch.tensor(float(sum(batch_size(batch) for batch in batches)))
            local = torch.stack([torch.stack(sums).sum().double(), count.to(sums[0]).double()])
            (total,) = Ranks.of(self._group).sum([local], like=[local])
            assert total is not None
            return float(total[0] / total[1])

        return loss

    def _gradients(self, batches: Iterable[Batch]) -> Gradients:
        """Return g† over all these batches, each sample weighing the same (Eq. 7)."""
        check_mode()
        theta, phi = map(self._objective.leaves, self._objective.split(self.h))
        setting, wrt = self._setting(ranks=Ranks(), pace=Pace()), list(theta.values())
        sums: Gradients = [None] * len(theta)
        count = 0
        with setting.random.unchanged():
            for batch in batches:
                side = self._sides(self._pace_for(batch)).summed(batch)
                step = VirtualStep(side, theta, phi, setting=setting, has_curvature=False)
                sums = [plus(a, b) for a, b in zip(sums, step.g, strict=True)]
                count += batch_size(batch)
        if count == 0:
            raise DataError("there are no batches to read; pass a loader that yields at least one")
        ranks = Ranks.of(self._group)
        total = ranks.total(count, wrt[0].device)
        sums = ranks.sum(sums, like=wrt)
        check_reached(any(value is not None for value in sums), "inner")
        return [None if value is None else value / total for value in sums]

    def _setting(self, *batches: Batch, ranks: Ranks, pace: Pace) -> Setting:
        places = {parameter.device for parameter in self._objective.parameters()}
        places = places.union(*(devices(batch) for batch in batches))
        return Setting(
            RandomSource(places, self._generators),
            ranks,
            pace.keeps_graphs,
            check_graph if self._inspects else None,
            self._seconds,
        )

    def _sides(self, pace: Pace) -> Sides:
        return Sides(self._objective, self.order, self._curvature, pace)

    def _pace_for(self, batch: Batch) -> Pace:
        with self._setting(batch, ranks=Ranks(), pace=Pace()).random.unchanged():
            pace = self._pacing.of(batch)
        keep_memory(is_lean=pace.chunk is not None)
        return pace

    def _can_be_cut(self, batch: Batch, pace: Pace) -> bool:
        with self._setting(batch, ranks=Ranks(), pace=Pace()).random.unchanged():
            return self._pacing.can_be_cut(batch, pace)

    def _terms(
        self, result: Hypergradient, theta: Parameters, scale: float | Tensor, ranks: Ranks
    ) -> Terms:
        is_shared = ranks.count > 1 and (
            not result.is_per_sample or self._objective.couples_samples(is_outer=True)
        )
        is_exact = self.order == 2 and self._curvature == 1 and not is_shared
        return terms_of(result, theta, scale=scale, is_exact=is_exact)


def _copied(value: object) -> object:
    return value.detach().clone() if isinstance(value, Tensor) else value
