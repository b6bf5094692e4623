"""ReLU, max pooling and frozen batch norm against torch's own, value and derivatives."""

import pytest
import torch
import torch.nn.functional as F
from tests.support.derivatives import Operator, assert_same, derivatives
from torch import Tensor

from cicf.maths import operators
from cicf.maths.operators import Statistics, Window, max_pooled, normalised, rectified

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("shape", [(7,), (2, 3, 4, 5), (2, 3, 4)])
def test_relu_is_that_of_torch_at_zero_too(shape: tuple[int, ...], in_place: bool) -> None:
    x = torch.randn(shape).round()
    assert (x == 0).any()
    assert_same(
        derivatives(lambda x: rectified(x * 1, in_place=in_place) ** 2, [x]),
        derivatives(lambda x: F.relu(x * 1, inplace=in_place) ** 2, [x]),
    )


def test_relu_in_place_writes_to_its_input() -> None:
    x = torch.randn(4, 5, requires_grad=True) * 1
    part = x[1:]
    y = rectified(x, in_place=True)
    assert y is x
    assert (part >= 0).all()


def test_relu_in_place_reaches_the_views_that_were_taken_before() -> None:
    def of(operator: Operator) -> Operator:
        def function(x: Tensor) -> Tensor:
            x = x * 1
            part = x[1:]
            operator(x)
            return part**2

        return function

    x = torch.randn(4, 5)
    ours, torchs = (lambda x: rectified(x, in_place=True)), torch.relu_
    assert_same(derivatives(of(ours), [x]), derivatives(of(torchs), [x]))


def test_change_of_what_relu_saved_is_refused() -> None:
    x = torch.randn(4, 5, requires_grad=True)
    y = rectified(x)
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


WINDOWS = {
    "plain": Window((2, 2), (2, 2), (0, 0), (1, 1), False),
    "overlapping": Window((3, 3), (1, 2), (1, 1), (1, 1), False),
    "rounded-up": Window((3, 2), (2, 2), (1, 0), (1, 1), True),
    "dilated": Window((2, 3), (1, 1), (1, 1), (2, 2), False),
    "whole": Window((7, 6), (7, 6), (0, 0), (1, 1), False),
}


@pytest.mark.parametrize("has_ties", [False, True])
@pytest.mark.parametrize("name", WINDOWS)
def test_max_pooling_is_that_of_torch(name: str, has_ties: bool) -> None:
    window = WINDOWS[name]
    x = torch.randn(2, 3, 7, 6)
    x = x.round() if has_ties else x
    assert_same(
        derivatives(lambda x: max_pooled(x * 1, window) ** 2, [x]),
        derivatives(lambda x: F.max_pool2d(x * 1, *window) ** 2, [x]),
    )


def test_max_pooling_passes_on_what_is_no_number() -> None:
    x = torch.randn(2, 3, 7, 6)
    x[0, 1, 2, 3], x[1, 0] = torch.nan, -torch.inf
    window = WINDOWS["overlapping"]
    assert_same(
        derivatives(lambda x: max_pooled(x, window), [x]),
        derivatives(lambda x: F.max_pool2d(x, *window), [x]),
    )


def test_max_pooling_keeps_no_image() -> None:
    kept: list[torch.dtype] = []

    def keep(value: Tensor) -> Tensor:
        kept.append(value.dtype)
        return value

    x = torch.randn(2, 3, 6, 6, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        max_pooled(x, WINDOWS["plain"])
    assert kept == [torch.int64]


def images(*, n: int = 3, c: int = 4, side: int = 5, offset: float = 1.0) -> list[Tensor]:
    """Return an image, weight, bias, mean and variance, means of the size of the offset."""
    mean, variance = offset * torch.randn(c), torch.rand(c) + 0.5
    x = torch.randn(n, c, side, side) * variance.sqrt()[:, None, None] + mean[:, None, None]
    return [x, torch.randn(c), torch.randn(c), mean, variance]


def ours(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return normalised(x, weight, bias, Statistics(mean, variance, 1e-5))


def torchs(x: Tensor, weight: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    return F.batch_norm(x, mean, variance, weight, bias, False, 0.1, 1e-5)


def frozen(operator: Operator, mean: Tensor, variance: Tensor) -> Operator:
    return lambda x, weight, bias: operator(x, weight, bias, mean, variance)


@pytest.mark.parametrize("side", [1, 5, 40])
def test_batch_norm_is_that_of_torch(side: int) -> None:
    *inputs, mean, variance = images(side=side)
    assert_same(
        derivatives(frozen(ours, mean, variance), inputs),
        derivatives(frozen(torchs, mean, variance), inputs),
    )


def test_third_derivatives_are_those_of_torch() -> None:
    *inputs, mean, variance = images()
    window = WINDOWS["overlapping"]

    def third(norm: Operator, relu: Operator, pool: Operator) -> list[Tensor]:
        leaves = [each.clone().requires_grad_() for each in inputs]
        y = pool(relu(norm(*leaves, mean, variance).tanh()))
        (slope,) = torch.autograd.grad((y**3).sum(), leaves[0], create_graph=True)
        g = torch.autograd.grad((slope**2).sum(), leaves, create_graph=True)
        return list(torch.autograd.grad(sum((each**2).sum() for each in g), leaves))

    for found, expected in zip(
        third(ours, rectified, lambda x: max_pooled(x, window)),
        third(torchs, F.relu, lambda x: F.max_pool2d(x, *window)),
        strict=True,
    ):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def rounding(operator: Operator, given: list[Tensor]) -> list[float]:
    """Return the relative error of each derivative in single precision."""
    *inputs, mean, variance = given
    exact = derivatives(
        frozen(torchs, mean.double(), variance.double()), [each.double() for each in inputs]
    )
    found = derivatives(frozen(operator, mean, variance), inputs)
    return [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]


@pytest.mark.parametrize("offset", [1.0, 10.0, 1000.0])
def test_batch_norm_rounds_as_torch_does_when_means_are_large(offset: float) -> None:
    given = [each.float() for each in images(n=4, c=64, side=4, offset=offset)]
    errors, torchs_errors = rounding(ours, given), rounding(torchs, given)
    # Value, image's gradient, and what comes back to slope and image. For the value, torch rounds
    # product and sum at once where the processor can.
    for place, most in ((0, 2.0), (1, 1.5), (4, 1.5), (5, 1.5)):
        assert errors[place] < most * torchs_errors[place]


def test_batch_norms_sums_are_more_exact_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [each.float() for each in images(n=10, c=8, side=80)]
    in_pieces = rounding(ours, given)
    monkeypatch.setattr(operators, "_ROWS", 1 << 30)
    at_once = rounding(ours, given)
    weight, bias = 2, 3
    assert in_pieces[weight] < at_once[weight] / 3
    assert in_pieces[bias] < at_once[bias] / 3


def test_statistics_that_move_before_the_gradient_are_refused() -> None:
    *inputs, mean, variance = images()
    x = inputs[0].requires_grad_()
    y = ours(x, inputs[1], inputs[2], mean, variance)
    mean.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_change_of_batch_norms_value_changes_no_gradient() -> None:
    *inputs, mean, variance = images()
    assert_same(
        derivatives(lambda x, w, b: ours(x, w, b, mean, variance).mul_(2).relu_() ** 2, inputs),
        derivatives(lambda x, w, b: torchs(x, w, b, mean, variance).mul_(2).relu_() ** 2, inputs),
    )
