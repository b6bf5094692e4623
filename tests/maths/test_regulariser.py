"""The learnt regulariser: the unrolled steps and their slope against derivations by hand."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cicf.maths.regulariser import LinearHead, unrolled, weighted_l1

CLASSES, SIZE = 3, 4
pytestmark = pytest.mark.usefixtures("float64")


def batch(count: int, seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    z = torch.randn(count, SIZE, generator=stream)
    return z, torch.randint(CLASSES, (count,), generator=stream)


def start(*, has_bias: bool = True) -> LinearHead:
    stream = torch.Generator().manual_seed(5)
    weight = torch.randn(CLASSES, SIZE, generator=stream)
    return LinearHead(weight, torch.randn(CLASSES, generator=stream) if has_bias else None)


def some_phi() -> Tensor:
    return torch.linspace(-0.2, 0.6, CLASSES * SIZE).reshape(CLASSES, SIZE)


def slopes(
    weight: np.ndarray, bias: np.ndarray, z: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the gradient of the mean cross-entropy of softmax regression."""
    scores = z @ weight.T + bias
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]
    return error.T @ z / len(y), error.mean(axis=0)


def test_the_regulariser_is_a_weighted_sum_of_absolute_values() -> None:
    phi, weight = some_phi(), start().weight
    expected = 0.0
    for p, w in zip(phi.flatten().tolist(), weight.flatten().tolist(), strict=True):
        expected += p * abs(w)
    assert float(weighted_l1(phi, weight)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_the_steps_are_those_of_a_loop_with_the_slope_in_closed_form(
    steps: int, has_bias: bool
) -> None:
    (z, y), phi, head = batch(6, 0), some_phi(), start(has_bias=has_bias)
    weight = head.weight.numpy().copy()
    bias = np.zeros(CLASSES) if head.bias is None else head.bias.numpy().copy()
    for _ in range(steps):
        by_weight, by_bias = slopes(weight, bias, z.numpy(), y.numpy())
        weight = weight - 0.1 * (by_weight + phi.numpy() * np.sign(weight))
        bias = bias - 0.1 * by_bias * has_bias
    found = unrolled(head, phi, (z, y), steps=steps, lr=0.1)
    np.testing.assert_allclose(found.weight.detach().numpy(), weight, atol=1e-12)
    assert (found.bias is not None) == has_bias
    if found.bias is not None:
        np.testing.assert_allclose(found.bias.detach().numpy(), bias, atol=1e-12)


def test_the_slope_through_one_step_has_the_closed_form() -> None:
    # w₁ = w₀ − α (∇CE_a + φ sign w₀), so that ∂CE_b(w₁)/∂φ = −α sign(w₀) ∇CE_b(w₁).
    phi, head, (z, y) = some_phi().requires_grad_(), start(), batch(5, 1)
    after = unrolled(head, phi, batch(6, 0), steps=1, lr=0.1)
    (found,) = torch.autograd.grad(F.cross_entropy(after.logits(z), y), phi)
    at = after.weight.detach().numpy(), after.bias.detach().numpy()
    by_weight, _ = slopes(*at, z.numpy(), y.numpy())
    expected = -0.1 * np.sign(head.weight.numpy()) * by_weight
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


@pytest.mark.parametrize("steps", [1, 3, 8])
def test_the_slope_through_all_steps_is_that_of_finite_differences(steps: int) -> None:
    head, (z, y) = start(), batch(5, 1)

    def loss(phi: Tensor) -> Tensor:
        after = unrolled(head, phi, batch(6, 0), steps=steps, lr=0.1)
        return F.cross_entropy(after.logits(z), y)

    assert torch.autograd.gradcheck(loss, some_phi().requires_grad_(), eps=1e-6, atol=1e-9)


def test_the_second_derivative_takes_part_in_the_slope() -> None:
    # Were ∇CE_a a constant in each step, the slope through l steps would be −α Σ_t sign(w_t).
    phi, head, (z, y) = some_phi().requires_grad_(), start(), batch(5, 1)
    after = unrolled(head, phi, batch(6, 0), steps=8, lr=0.1)
    (found,) = torch.autograd.grad(F.cross_entropy(after.logits(z), y), phi)
    at = after.weight.detach().numpy(), after.bias.detach().numpy()
    by_weight, _ = slopes(*at, z.numpy(), y.numpy())
    ways = [unrolled(head, phi, batch(6, 0), steps=steps, lr=0.1) for steps in range(8)]
    signs = sum(np.sign(way.weight.detach().numpy()) for way in ways)
    assert np.abs(found.numpy() + 0.1 * signs * by_weight).max() > 1e-3


def test_no_gradient_reaches_the_features_or_the_head_at_the_start() -> None:
    phi, (z, y) = some_phi().requires_grad_(), batch(6, 0)
    weight, z = start().weight.requires_grad_(), z.requires_grad_()
    after = unrolled(LinearHead(weight), phi, (z, y), steps=2, lr=0.1)
    after.weight.sum().backward()
    assert phi.grad is not None
    assert weight.grad is None
    assert z.grad is None


def test_without_a_regulariser_the_steps_are_plain_descent() -> None:
    (z, y), head = batch(6, 0), start()
    layer = torch.nn.Linear(SIZE, CLASSES)
    layer.load_state_dict({"weight": head.weight, "bias": head.bias})
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    for _ in range(4):
        optimizer.zero_grad()
        F.cross_entropy(layer(z), y).backward()
        optimizer.step()
    found = unrolled(head, torch.zeros(CLASSES, SIZE), (z, y), steps=4, lr=0.1)
    torch.testing.assert_close(found.weight, layer.weight, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.bias, layer.bias, rtol=0, atol=1e-12)
