"""Slopes by finite differences, along directions at random."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor


@torch.no_grad()
def slope(
    function: Callable[[], float | Tensor], parameters: Sequence[Tensor], along: list[Tensor]
) -> float:
    """Return (f(θ + h v) − f(θ − h v)) / 2h, the parameters being moved and put back."""
    h = 1e-5
    start = [parameter.clone() for parameter in parameters]
    values = []
    for sign in (1, -1):
        for parameter, old, direction in zip(parameters, start, along, strict=True):
            parameter.copy_(old + sign * h * direction)
        values.append(float(function()))
    for parameter, old in zip(parameters, start, strict=True):
        parameter.copy_(old)
    return (values[0] - values[1]) / (2 * h)


def assert_slopes(
    function: Callable[[], float | Tensor],
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    *,
    count: int = 3,
) -> None:
    """Check gradients against slopes along some directions, each of length 1."""
    stream = torch.Generator().manual_seed(5)
    for _ in range(count):
        along = [torch.randn(p.shape, generator=stream, dtype=p.dtype) for p in parameters]
        length = float(sum(v.square().sum() for v in along)) ** 0.5
        along = [v / length for v in along]
        expected = float(sum((g * v).sum() for g, v in zip(gradients, along, strict=True)))
        size = float(sum(g.square().sum() for g in gradients)) ** 0.5
        assert size > 0
        assert slope(function, parameters, along) == pytest.approx(expected, abs=1e-6 * size)
