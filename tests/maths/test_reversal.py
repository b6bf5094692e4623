"""Gradient reversal: its value, its gradient, and what a second derivative makes of it."""

import pytest
import torch
from torch import Tensor

from cicf.maths.reversal import reversed_gradient

pytestmark = pytest.mark.usefixtures("float64")


def cubes(x: Tensor, strength: float | Tensor) -> Tensor:
    return (reversed_gradient(x, strength) ** 3).sum()


def test_values_pass_unchanged() -> None:
    x = torch.randn(3, 4)
    assert torch.equal(reversed_gradient(x, 0.7), x)


@pytest.mark.parametrize("strength", [0.0, 0.3, 2.0])
def test_the_gradient_comes_back_with_the_opposite_sign_times_the_strength(strength: float) -> None:
    x = torch.randn(5, requires_grad=True)
    (found,) = torch.autograd.grad(cubes(x, strength), x)
    torch.testing.assert_close(found, -strength * 3 * x.detach() ** 2, rtol=0, atol=1e-12)


def test_the_strength_may_be_a_number_on_a_device() -> None:
    x = torch.randn(5, requires_grad=True)
    found = [torch.autograd.grad(cubes(x, s), x)[0] for s in (0.3, torch.tensor(0.3))]
    assert torch.equal(*found)


def test_a_second_derivative_passes_twice() -> None:
    x = torch.randn(5, requires_grad=True)
    (first,) = torch.autograd.grad(cubes(x, 0.3), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 0.3**2 * 6 * x.detach(), rtol=0, atol=1e-12)


def test_what_lies_behind_has_the_derivatives_it_would_have() -> None:
    x, weight = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    with_it = (reversed_gradient(x, 0.3) * weight).sin().sum()
    without = (x * weight).sin().sum()
    found, expected = (
        torch.autograd.grad(value, weight, create_graph=True)[0] for value in (with_it, without)
    )
    assert torch.equal(found, expected)
    again = [torch.autograd.grad(value.sum(), weight)[0] for value in (found, expected)]
    assert torch.equal(*again)


def test_single_precision_stays_single() -> None:
    x = torch.randn(3, dtype=torch.float32, requires_grad=True)
    (found,) = torch.autograd.grad(cubes(x, torch.tensor(0.5)), x)
    assert found.dtype == torch.float32
