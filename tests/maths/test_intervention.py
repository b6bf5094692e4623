"""Eq. 4 to 11 and Algorithm 1, each against a second derivation, in float64."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.intervention import (
    Labelled,
    Parameters,
    cicf_loss,
    cicf_update,
    exact_intervention,
    global_gradient,
    instance_gradients,
    intervened_parameters,
    interventional_prediction,
    maml_loss,
    taylor_intervention,
    weighted_gradient,
)

pytestmark = pytest.mark.usefixtures("float64")


def f(theta: Parameters, z: Tensor) -> Tensor:
    return torch.tanh(z @ theta["w1"]) @ theta["w2"] + theta["b"]


def parameters(seed: int = 0) -> Parameters:
    stream = torch.Generator().manual_seed(seed)
    shapes = {"w1": (4, 5), "w2": (5, 3), "b": (3,)}
    return {
        name: torch.randn(shape, generator=stream, dtype=torch.float64).requires_grad_()
        for name, shape in shapes.items()
    }


def batch(size: int, seed: int = 0) -> Labelled:
    stream = torch.Generator().manual_seed(seed)
    z = torch.randn(size, 4, generator=stream, dtype=torch.float64)
    return Labelled(z, torch.randint(3, (size,), generator=stream))


def uniform(size: int) -> Tensor:
    return torch.full((size,), 1 / size, dtype=torch.float64)


def test_instance_gradients_of_a_linear_head_have_the_closed_form() -> None:
    """For logits z W, the gradient of the cross-entropy is z (p − e_y)ᵀ."""
    data, w = batch(6), torch.randn(4, 3)
    g = instance_gradients(lambda theta, z: z @ theta["w"], {"w": w}, data)["w"]
    residual = (data.z @ w).softmax(dim=1) - F.one_hot(data.y, 3)
    torch.testing.assert_close(g, torch.einsum("md,mc->mdc", data.z, residual))


def test_instance_gradient_is_that_of_a_batch_of_one() -> None:
    theta, data = parameters(), batch(5)
    g = instance_gradients(f, theta, data)
    for i in range(5):
        alone = global_gradient(f, theta, Labelled(data.z[i : i + 1], data.y[i : i + 1]))
        for name in theta:
            torch.testing.assert_close(g[name][i], alone[name])


def test_alpha_zero_leaves_the_prediction_alone() -> None:
    theta, data, z = parameters(), batch(5), batch(3, 1).z
    plain = f(theta, z).softmax(dim=1)
    g = global_gradient(f, theta, data)
    torch.testing.assert_close(interventional_prediction(f, theta, g, alpha=0.0, z=z), plain)
    exact = exact_intervention(f, theta, data, alpha=0.0, z=z, p=uniform(5))
    torch.testing.assert_close(exact, plain)
    torch.testing.assert_close(taylor_intervention(f, theta, g, alpha=0.0, z=z), plain)


def test_exact_intervention_is_the_loop_of_eq_5() -> None:
    theta, data, z = parameters(), batch(4), batch(3, 1).z
    p = torch.tensor([0.1, 0.2, 0.3, 0.4])
    expected = torch.zeros(3, 3)
    for i in range(4):
        loss = F.cross_entropy(f(theta, data.z[i : i + 1]), data.y[i : i + 1])
        g = torch.autograd.grad(loss, list(theta.values()))
        moved = {name: theta[name] - 0.3 * slope for name, slope in zip(theta, g, strict=True)}
        expected += p[i] * f(moved, z).softmax(dim=1).detach()
    found = exact_intervention(f, theta, data, alpha=0.3, z=z, p=p).detach()
    torch.testing.assert_close(found, expected)


def test_interventional_predictions_are_probabilities() -> None:
    theta, data, z = parameters(), batch(5), batch(3, 1).z
    found = exact_intervention(f, theta, data, alpha=2.0, z=z, p=uniform(5))
    torch.testing.assert_close(found.sum(dim=1), torch.ones(3))
    assert (found >= 0).all()


def test_taylor_slope_is_that_of_finite_differences() -> None:
    theta, z, epsilon = parameters(), batch(3, 1).z, 1e-6
    g = global_gradient(f, theta, batch(5))
    slope = taylor_intervention(f, theta, g, alpha=1.0, z=z) - f(theta, z).softmax(dim=1)
    forward, backward = (
        interventional_prediction(f, theta, g, alpha=sign * epsilon, z=z) for sign in (1, -1)
    )
    torch.testing.assert_close(slope, (forward - backward) / (2 * epsilon), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("target", ["exact (Eq. 5 against 6)", "moved (Eq. 9 against 8)"])
def test_taylor_error_shrinks_as_alpha_squared(target: str) -> None:
    theta, data, z, p = parameters(), batch(5), batch(3, 1).z, uniform(5)
    g = weighted_gradient(instance_gradients(f, theta, data), p)

    def error(alpha: float) -> float:
        if target.startswith("exact"):
            true = exact_intervention(f, theta, data, alpha=alpha, z=z, p=p)
        else:
            true = interventional_prediction(f, theta, g, alpha=alpha, z=z)
        return (true - taylor_intervention(f, theta, g, alpha=alpha, z=z)).norm().item()

    assert error(1e-3) / error(5e-4) == pytest.approx(4, rel=0.02)


def test_uniform_weights_give_the_global_gradient() -> None:
    theta, data = parameters(), batch(7)
    weighted = weighted_gradient(instance_gradients(f, theta, data), uniform(7))
    for name, slope in global_gradient(f, theta, data).items():
        torch.testing.assert_close(weighted[name], slope)


def test_global_gradient_is_that_of_finite_differences() -> None:
    theta, data, epsilon = parameters(), batch(5), 1e-6
    g = global_gradient(f, theta, data)
    direction = {name: torch.randn_like(value) for name, value in theta.items()}

    def loss(t: float) -> Tensor:
        moved = {name: value + t * direction[name] for name, value in theta.items()}
        return F.cross_entropy(f(moved, data.z), data.y)

    expected = (loss(epsilon) - loss(-epsilon)) / (2 * epsilon)
    found = sum((g[name] * direction[name]).sum().item() for name in theta)
    assert found == pytest.approx(expected.item(), rel=1e-7)


def test_intervened_parameters_go_down_the_inner_loss() -> None:
    theta, data = parameters(), batch(9)
    moved = intervened_parameters(theta, global_gradient(f, theta, data), 1e-3)
    assert F.cross_entropy(f(moved, data.z), data.y) < F.cross_entropy(f(theta, data.z), data.y)


def test_cicf_loss_with_alpha_zero_is_cross_entropy() -> None:
    theta, outer = parameters(), batch(6, 1)
    found = cicf_loss(f, theta, batch(5), outer, alpha=0.0)
    torch.testing.assert_close(found, F.cross_entropy(f(theta, outer.z), outer.y))


def test_cicf_loss_passes_gradcheck_through_the_inner_step() -> None:
    theta, inner, outer = parameters(), batch(5), batch(6, 1)

    def loss(*values: Tensor) -> Tensor:
        return cicf_loss(f, dict(zip(theta, values, strict=True)), inner, outer, alpha=0.5)

    assert torch.autograd.gradcheck(loss, tuple(theta.values()))


def test_maml_of_one_task_is_cicf() -> None:
    theta, inner, outer = parameters(), batch(5), batch(6, 1)
    torch.testing.assert_close(
        maml_loss(f, theta, [(inner, outer)], alpha=0.3),
        cicf_loss(f, theta, inner, outer, alpha=0.3),
    )


def test_maml_moves_each_task_by_its_own_gradient() -> None:
    theta = parameters()
    tasks = [(batch(4, s), batch(3, s + 10)) for s in range(3)]
    expected = torch.zeros(())
    for train, test in tasks:
        g = torch.autograd.grad(F.cross_entropy(f(theta, train.z), train.y), list(theta.values()))
        moved = {name: theta[name] - 0.3 * slope for name, slope in zip(theta, g, strict=True)}
        expected = expected + F.cross_entropy(f(moved, test.z), test.y) / 3
    torch.testing.assert_close(maml_loss(f, theta, tasks, alpha=0.3), expected)


def test_algorithm_1_descends_its_loss_with_rate_beta() -> None:
    theta, inner, outer = parameters(), batch(8), batch(6, 1)
    updated = cicf_update(f, theta, inner, outer, alpha=0.3, beta=1e-6)
    before = cicf_loss(f, theta, inner, outer, alpha=0.3)
    after = cicf_loss(
        f,
        {name: value.requires_grad_() for name, value in updated.items()},
        inner,
        outer,
        alpha=0.3,
    )
    gradient = torch.autograd.grad(before, list(theta.values()))
    squared = sum(float(slope.square().sum()) for slope in gradient)
    assert (before - after).item() == pytest.approx(1e-6 * squared, rel=1e-4)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), alpha=st.floats(0, 5), size=st.integers(1, 8))
def test_moving_by_the_mean_gradient_is_the_mean_of_the_moves(
    seed: int, alpha: float, size: int
) -> None:
    theta, data = parameters(seed), batch(size, seed)
    gradients = instance_gradients(f, theta, data)
    moved = intervened_parameters(theta, weighted_gradient(gradients, uniform(size)), alpha)
    for name in theta:
        each = theta[name] - alpha * gradients[name]
        torch.testing.assert_close(moved[name], each.mean(dim=0))


@pytest.mark.parametrize(("alpha", "seed"), [(0.5, 0), (2.0, 0), (0.5, 1)])
def test_with_the_gradient_of_all_images_theta_dagger_is_the_minimum_of_erm(
    alpha: float, seed: int
) -> None:
    """L_CICF(θ) = L(θ†), so that no other θ† can have a smaller one, even with g† of others."""
    data, inner = batch(40), batch(40, seed)

    def linear(theta: Parameters, z: Tensor) -> Tensor:
        return z @ theta["w"]

    def minimised(alpha: float) -> Tensor:
        w = torch.zeros(4, 3, requires_grad=True)
        search = torch.optim.LBFGS(
            [w],
            max_iter=500,
            tolerance_grad=1e-12,
            tolerance_change=0,
            line_search_fn="strong_wolfe",
        )

        def loss() -> Tensor:
            search.zero_grad()
            value = cicf_loss(linear, {"w": w}, inner, data, alpha=alpha)
            value.backward()
            return value

        search.step(loss)
        g = global_gradient(linear, {"w": w}, inner)
        return intervened_parameters({"w": w}, g, alpha)["w"].detach()

    torch.testing.assert_close(minimised(alpha), minimised(0.0), rtol=0, atol=1e-6)
