"""The choice of α, which decides everything: too small does nothing, too large overshoots."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from cicf.core import ConfigError, DataError
from cicf.core.batch import Batch
from cicf.intervention.losses import cross_entropy_per_sample
from cicf.intervention.objective import BatchNorm, LossFunction
from cicf.intervention.step import Intervention

_REFINEMENTS = 6


@dataclass(frozen=True, slots=True)
class AlphaCurve:
    """The inner loss after a virtual step, as a function of its α."""

    alpha: float
    """The largest α up to which every virtual step that was tried lowers the inner loss."""
    best: float
    """The α that was tried with the lowest inner loss."""
    loss: float
    """The inner loss at θ, where α is 0."""
    curve: tuple[tuple[float, float], ...]
    """What was tried: pairs (α, inner loss after the step), by ascending α."""

    def __str__(self) -> str:
        rows = [f"{'alpha':>10}  {'loss':>10}", f"{0:>10}  {self.loss:>10.4g}"]
        for alpha, loss in self.curve:
            marks = ["largest that lowers the loss"] * (alpha == self.alpha)
            marks += ["lowest loss"] * (alpha == self.best)
            rows.append(f"{alpha:>10.3g}  {loss:>10.4g}  {', '.join(marks)}".rstrip())
        return "\n".join(rows)


def suggest_alpha(
    model: nn.Module,
    batches: Iterable[Batch],
    *,
    h: Sequence[str] = (),
    loss: LossFunction = cross_entropy_per_sample,
    batch_norm: BatchNorm = "batch",
    chunk: int | None = None,
    generators: Sequence[torch.Generator] = (),
    group: torch.distributed.ProcessGroup | None = None,
    smallest: float = 1e-4,
    largest: float = 100.0,
) -> AlphaCurve:
    """Return the largest α whose virtual step lowers the inner loss at the present parameters.

    It doubles α from `smallest` until the loss rises above that at θ, then bisects. A few batches
    are enough; they are held in memory. Ask again during training: the answer changes.
    """
    numbers = all(isinstance(value, int | float) for value in (smallest, largest))
    if not (numbers and 0 < smallest < largest):
        raise ConfigError(f"smallest={smallest} must be above 0 and below largest={largest}")
    held = list(batches)
    step = Intervention(
        model,
        h=h,
        alpha=0.0,
        order=1,
        loss=loss,
        batch_norm=batch_norm,
        chunk=chunk,
        generators=generators,
        group=group,
    )
    loss_after = step.inner_losses(held)
    start = loss_after(0.0)
    tried: dict[float, float] = {}

    def lowers(alpha: float) -> bool:
        tried[alpha] = loss_after(alpha)
        return tried[alpha] < start

    good, bad = _bracket(lowers, smallest, largest)
    if good is None:
        raise DataError(
            f"a step of alpha={smallest:g} does not lower the inner loss of {start:.4g}: the "
            "gradient is 0, or the loss is not finite; check the loss, or lower `smallest`"
        )
    for _ in range(_REFINEMENTS):
        if bad is None:
            break
        middle = math.sqrt(good * bad)
        good, bad = (middle, bad) if lowers(middle) else (good, middle)
    # The first that was tried lowers the loss, so a NaN, which no number is above, is never kept.
    best = min(tried, key=lambda alpha: tried[alpha])
    return AlphaCurve(good, best, start, tuple(sorted(tried.items())))


def _bracket(
    lowers: Callable[[float], bool], smallest: float, largest: float
) -> tuple[float | None, float | None]:
    """Return the last α that lowers the loss and the first that does not; None for no such α."""
    good, alpha = None, smallest
    while lowers(alpha):
        if alpha == largest:
            return alpha, None
        good, alpha = alpha, min(2 * alpha, largest)
    return good, alpha
