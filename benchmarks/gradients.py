"""Whether a contestant's gradient is right: a time counts only if it is."""

import copy
import math
import statistics
from dataclasses import dataclass

import torch
from networks import Batch, Setting
from peers import Step
from torch import Tensor, nn

MOST_IN_FLOAT64, MOST_IN_FLOAT32 = 1e-10, 1.5


@dataclass(frozen=True)
class Errors:
    """Are errors of a gradient relative to unrolled autograd in float64.

    `float64` is that in float64; `float32` is a multiple of unrolled autograd's own in float32 on
    the same batch, the median over seeds, with the extremes beside it: where rounding turns a ReLU
    or a maximum the other way, seeds differ by orders of magnitude.
    """

    float64: float
    float32: float
    least_float32: float
    most_float32: float

    @property
    def are_small(self) -> bool:
        """Tell whether times count."""
        return self.float64 <= MOST_IN_FLOAT64 and self.float32 <= MOST_IN_FLOAT32


def errors_of(step: Step, reference: Step, setting: Setting, cut: str, seeds: int) -> Errors:
    """Return the errors of a step on small batches of a setting."""
    single = setting.network()
    double = copy.deepcopy(single).double()
    exact, ratios = math.nan, []
    for seed in range(seeds):
        batches = [setting.batch(m, seed=2 * seed + i) for i, m in enumerate(setting.checked)]
        wide = [(x.double(), y) for x, y in batches]
        h, alpha = setting.h(cut), setting.alpha
        truth = gradient(reference, double, h, alpha, wide)
        if seed == 0:
            exact = _error(gradient(step, double, h, alpha, wide), truth)
        ours, theirs = (
            _error(gradient(each, single, h, alpha, batches), truth) for each in (step, reference)
        )
        ratios.append(ours / theirs)
    return Errors(exact, statistics.median(ratios), min(ratios), max(ratios))


def gradient(
    step: Step, model: nn.Module, h: tuple[str, ...], alpha: float, batches: list[Batch]
) -> list[Tensor]:
    """Return the gradient that a step leaves."""
    model.zero_grad(set_to_none=True)
    step(model, h, alpha, batches[0], batches[1])
    found = [p.grad for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return found


def _error(found: list[Tensor], truth: list[Tensor]) -> float:
    pairs = zip(found, truth, strict=True)
    squares = torch.stack([(a.double() - b).square().sum() for a, b in pairs]).sum()
    return float((squares / torch.stack([b.square().sum() for b in truth]).sum()).sqrt())
