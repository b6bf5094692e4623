"""The safeguard: α is lowered until the virtual step is small against θ."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.nets import images, smooth_net
from tests.support.unrolled import distance, stepped_gradients
from torch import Tensor, nn

from cicf import Intervention
from cicf.maths.moving import bounded_alpha

quick = settings(max_examples=15, deadline=None)
THETA = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])}  # ‖θ‖ = 5
G = [torch.tensor([0.0, -6.0]), torch.tensor([[8.0]])]  # ‖g†‖ = 10


def whole_gradient(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    loss = F.cross_entropy(model(batch[0]), batch[1])
    parts = torch.autograd.grad(loss, list(model.parameters()))
    return torch.cat([part.flatten() for part in parts])


def whole_theta(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_alpha_is_lowered_to_the_ratio_times_theta_over_g() -> None:
    assert bounded_alpha(1.0, G, THETA, max_step_ratio=0.1) == pytest.approx(0.05)


def test_alpha_within_the_bound_is_untouched() -> None:
    assert bounded_alpha(0.049, G, THETA, max_step_ratio=0.1) == 0.049


def test_an_infinite_ratio_is_no_bound() -> None:
    assert bounded_alpha(1e6, G, THETA, max_step_ratio=math.inf) == 1e6


def test_a_gradient_of_zero_leaves_alpha_alone() -> None:
    g = [torch.zeros(2), torch.zeros(1, 1)]
    assert bounded_alpha(0.7, g, THETA, max_step_ratio=0.1) == 0.7


def test_a_gradient_that_reaches_nothing_leaves_alpha_alone() -> None:
    assert bounded_alpha(0.7, [None, None], THETA, max_step_ratio=0.1) == 0.7


def test_a_parameter_that_g_does_not_reach_counts_in_theta_alone() -> None:
    found = bounded_alpha(1.0, [None, G[1]], THETA, max_step_ratio=0.1)
    assert found == pytest.approx(0.1 * 5 / 8)


def test_alpha_zero_stays_zero() -> None:
    assert bounded_alpha(0.0, G, THETA, max_step_ratio=0.1) == 0


def test_parameters_of_zero_allow_no_step() -> None:
    theta = {name: torch.zeros_like(value) for name, value in THETA.items()}
    assert bounded_alpha(1.0, G, theta, max_step_ratio=0.1) == 0


@quick
@given(
    alpha=st.floats(0, 1e4),
    ratio=st.floats(1e-4, 10),
    scale=st.floats(1e-3, 1e3),
    seed=st.integers(0, 100),
)
def test_the_step_ratio_never_exceeds_the_bound(
    alpha: float, ratio: float, scale: float, seed: int
) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    with torch.no_grad():
        model[1].weight *= scale
    step = Intervention(model, alpha=alpha, max_step_ratio=ratio)
    terms = step.backward(images(8, seed), images(4, seed + 1))
    assert float(terms.step_ratio) <= ratio * (1 + 1e-6)
    assert terms.alpha <= alpha


@pytest.mark.usefixtures("float64")
def test_a_step_takes_the_largest_alpha_that_is_allowed() -> None:
    model = smooth_net()
    terms = Intervention(model, alpha=50.0, max_step_ratio=0.02).backward(images(8), images(4))
    expected = 0.02 * whole_theta(model).norm() / whole_gradient(model, images(8)).norm()
    assert terms.alpha == pytest.approx(float(expected), rel=1e-12)
    assert float(terms.step_ratio) == pytest.approx(0.02, rel=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_bound_is_of_the_parameters_after_the_cut() -> None:
    model = smooth_net()
    step = Intervention(model, h=["stem"], alpha=50.0, max_step_ratio=0.02)
    found = step.backward(images(8), images(4)).alpha
    count = sum(parameter.numel() for parameter in model.head.parameters())
    theta, g = whole_theta(model)[-count:], whole_gradient(model, images(8))[-count:]
    assert found == pytest.approx(float(0.02 * theta.norm() / g.norm()), rel=1e-12)


def test_a_bound_that_is_not_reached_changes_no_bit() -> None:
    gradients = []
    for ratio in (10.0, math.inf):
        torch.manual_seed(0)
        model = smooth_net()
        step = Intervention(model, alpha=0.05, max_step_ratio=ratio)
        assert step.backward(images(8), images(4)).alpha == 0.05
        gradients.append(stepped_gradients(model))
    assert distance(*gradients) == 0


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("chunk", [None, 3])
def test_the_lowered_alpha_is_a_constant_of_the_gradient(order: int, chunk: int | None) -> None:
    model = smooth_net()
    bounded = Intervention(model, alpha=50.0, order=order, chunk=chunk, max_step_ratio=0.05)
    terms = bounded.backward(images(8), images(4))
    found = {name: value.clone() for name, value in stepped_gradients(model).items()}
    model.zero_grad()
    Intervention(model, alpha=terms.alpha, order=order, chunk=chunk).backward(images(8), images(4))
    assert terms.alpha < 50
    assert distance(found, stepped_gradients(model)) < 1e-12


@pytest.mark.usefixtures("float64")
def test_theta_dagger_is_bounded_as_the_steps_are() -> None:
    model = smooth_net()
    state = Intervention(model, alpha=50.0, max_step_ratio=0.02).theta_dagger([images(8)])
    moved = torch.cat([state[name].flatten() for name, _ in model.named_parameters()])
    theta, g = whole_theta(model), whole_gradient(model, images(8))
    torch.testing.assert_close(moved, theta - 0.02 * theta.norm() * g / g.norm())
