"""What batches add to the loss, against the losses of all batches that there are."""

from itertools import chain, combinations, product

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.estimated import added_by_error
from cicf.maths.intervention import Parameters
from cicf.maths.stratified import (
    cluster_moments,
    random_standard_error,
    stratified_standard_error,
    variance,
)

N, M, ALPHA = 7, 3, 0.4


def normal(seed: int, *shape: int) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=stream, dtype=torch.float64)


def random_batches(m: int) -> list[list[int]]:
    return [list(each) for each in combinations(range(N), m)]


def stratified_batches(clusters: list[list[int]], counts: list[int]) -> list[list[int]]:
    parts = [combinations(images, n) for images, n in zip(clusters, counts, strict=True)]
    return [list(chain(*each)) for each in product(*parts)]


class Squares:
    """Is a least-squares problem: its loss is a quadratic, whose batches can all be tried."""

    def __init__(self, seed: int) -> None:
        self.x, self.y, self.w = normal(seed, N, 4), normal(seed + 1, N), normal(seed + 2, 4)

    def loss(self, theta: Parameters) -> Tensor:
        return (self.x @ theta["w"] - self.y).square().mean() / 2

    @property
    def gradients(self) -> Tensor:
        return (self.x @ self.w - self.y)[:, None] * self.x

    def moved(self, g: Tensor) -> Parameters:
        return {"w": self.w - ALPHA * g}


def mean_added(problem: Squares, batches: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Return what these batches add, by the losses at their own θ†, and by the formula."""
    g = problem.gradients
    whole = problem.moved(g.mean(dim=0))
    tried = [problem.loss(problem.moved(g[each].mean(dim=0))) for each in batches]
    errors = [g[each].mean(dim=0) - g.mean(dim=0) for each in batches]
    formula = [added_by_error(problem.loss, whole, {"w": e}, ALPHA) for e in errors]
    return torch.stack(tried).mean() - problem.loss(whole), torch.stack(formula).mean()


@pytest.mark.parametrize("m", [1, M])
def test_it_is_what_all_batches_add_to_a_quadratic(m: int) -> None:
    tried, formula = mean_added(Squares(0), random_batches(m))
    torch.testing.assert_close(formula, tried, rtol=1e-10, atol=0)
    assert tried > 0


def test_it_is_what_all_stratified_batches_add_to_a_quadratic() -> None:
    problem = Squares(1)
    # Two of four and one of two: a half of each cluster, so that ĝ is right on average.
    problem.x, problem.y = problem.x[:6], problem.y[:6]
    tried, formula = mean_added(problem, stratified_batches([[0, 1, 2, 3], [4, 5]], [2, 1]))
    torch.testing.assert_close(formula, tried, rtol=1e-10, atol=0)


def test_the_batch_of_all_images_adds_nothing() -> None:
    problem = Squares(2)
    tried, formula = mean_added(problem, random_batches(N))
    assert float(tried) == pytest.approx(0, abs=1e-14)
    assert float(formula) == pytest.approx(0, abs=1e-14)
    error = {"w": normal(3, 4)}
    assert float(added_by_error(problem.loss, {"w": problem.w}, error, alpha=0.0)) == 0


def test_of_equal_curvature_it_is_the_standard_error_of_the_sampling() -> None:
    """½ α² λ times Eq. 15 for random batches, and times Eq. 19 for those of clusters."""
    g, curvature = normal(4, N - 1, 4), 3.0

    def loss(theta: Parameters) -> Tensor:
        return curvature / 2 * theta["w"].square().sum()

    def mean(batches: list[list[int]]) -> float:
        errors = [g[each].mean(dim=0) - g.mean(dim=0) for each in batches]
        added = [added_by_error(loss, {"w": normal(5, 4)}, {"w": e}, ALPHA) for e in errors]
        return float(torch.stack(added).mean())

    price = ALPHA**2 * curvature / 2
    random = random_standard_error(variance(g), m=M, n=N - 1)
    batches = [list(each) for each in combinations(range(N - 1), M)]
    assert mean(batches) == pytest.approx(price * float(random), rel=1e-10)
    moments = cluster_moments(g, torch.tensor([0, 0, 0, 0, 1, 1]))
    clustered = stratified_standard_error(moments, torch.tensor([2, 1]))
    batches = stratified_batches([[0, 1, 2, 3], [4, 5]], [2, 1])
    assert mean(batches) == pytest.approx(price * float(clustered), rel=1e-10)


def cross_entropy(seed: int) -> tuple[Parameters, Parameters, Tensor, Tensor]:
    theta, error = ({"w": normal(seed + k, 4, 3), "b": normal(seed + 2 + k, 3)} for k in (0, 1))
    return theta, error, normal(seed + 4, 9, 4), torch.arange(9) % 3


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6), alpha=st.floats(0, 0.1))
def test_what_is_left_out_is_of_fourth_order_for_errors_of_either_sign(
    seed: int, alpha: float
) -> None:
    """Along a line, the fourth derivative of cross-entropy is a cumulant κ₄ of logits' slopes.

    It is at most 3/16 of the fourth power of their range.
    """
    theta, error, x, y = cross_entropy(seed)

    def loss(at: Parameters) -> Tensor:
        return F.cross_entropy(x @ at["w"] + at["b"], y)

    moved = [{k: v + sign * alpha * error[k] for k, v in theta.items()} for sign in (-1, 1)]
    tried = torch.stack([loss(each) for each in moved]).mean() - loss(theta)
    formula = added_by_error(loss, theta, error, alpha)
    slopes = x @ error["w"] + error["b"]
    ranges = slopes.amax(dim=1) - slopes.amin(dim=1)
    assert formula >= 0  # the loss of a linear head is convex
    assert abs(tried - formula) <= alpha**4 / 24 * 3 / 16 * ranges.pow(4).mean() + 1e-14
