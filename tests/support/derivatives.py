"""Two operators by their value, their gradients and their second derivatives."""

from collections.abc import Callable

import torch
from torch import Tensor

Operator = Callable[..., Tensor]


def derivatives(operator: Operator, inputs: list[Tensor], seed: int = 1) -> list[Tensor]:
    """Return value, gradients and what directions for them pull back to slope and inputs."""
    stream = torch.Generator().manual_seed(seed)
    inputs = [each.detach().clone().requires_grad_() for each in inputs]
    y = operator(*inputs)
    slope = torch.randn(y.shape, generator=stream).to(y).requires_grad_()
    first = torch.autograd.grad(y, inputs, slope, create_graph=True)
    directions = [torch.randn(each.shape, generator=stream).to(each) for each in first]
    second = torch.autograd.grad(
        first, [slope, *inputs], directions, allow_unused=True, materialize_grads=True
    )
    return [each.detach() for each in (y, *first, *second)]


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    """Compare in double precision."""
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12, equal_nan=True)
