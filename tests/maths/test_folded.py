"""A convolution folded with the batch norm after it, against the two of torch."""

from functools import partial
from itertools import combinations

import pytest
import torch
import torch.nn.functional as F
from tests.support.derivatives import Operator, assert_same, derivatives
from torch import Tensor

from cicf.intervention.pace import saved_bytes
from cicf.maths.convolution import Geometry, channels_last, convolved
from cicf.maths.folded import Convolved, folded, is_worth_folding
from cicf.maths.operators import Statistics, normalised

pytestmark = pytest.mark.usefixtures("float64")

EPSILON = 1e-5
PLAIN = Geometry((1, 1), (1, 1), (1, 1), 1)
GEOMETRIES = {
    "plain": PLAIN,
    "strided": Geometry((2, 1), (1, 1), (1, 1), 1),
    "dilated": Geometry((1, 1), (2, 2), (2, 2), 1),
    "groups": Geometry((1, 1), (1, 1), (1, 1), 2),
}


def inputs_of(how: Geometry = PLAIN, *, side: int = 6, offset: float = 1.0) -> list[Tensor]:
    """Return an image, a kernel, weight, bias, and means of the size of the offset, variances."""
    x, kernel = torch.randn(3, 4, side, side), torch.randn(6, 4 // how.groups, 3, 3)
    return [
        *(x, kernel, torch.randn(6), torch.randn(6)),
        *(offset * torch.randn(6), torch.rand(6) + 0.5),
    ]


def ours(how: Geometry, mean: Tensor, variance: Tensor) -> Operator:
    by = Statistics(mean, variance, EPSILON)

    def operator(x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        of = Convolved(x, kernel, how, convolved(x, kernel, None, how))
        return folded(of, weight, bias, by)

    return operator


def torchs(how: Geometry, mean: Tensor, variance: Tensor) -> Operator:
    def operator(x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = F.conv2d(x, kernel, None, *how[:3], how.groups)
        return F.batch_norm(y, mean, variance, weight, bias, False, 0.1, EPSILON)

    return operator


@pytest.mark.parametrize("side", [2, 6])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_value_and_derivatives_are_those_of_torch(name: str, side: int) -> None:
    how = GEOMETRIES[name]
    *inputs, mean, variance = inputs_of(how, side=side)
    assert_same(
        derivatives(ours(how, mean, variance), inputs),
        derivatives(torchs(how, mean, variance), inputs),
    )


def test_channels_whose_weight_is_zero_are_no_exception() -> None:
    *inputs, mean, variance = inputs_of()
    inputs[2][:2] = 0
    assert_same(
        derivatives(ours(PLAIN, mean, variance), inputs),
        derivatives(torchs(PLAIN, mean, variance), inputs),
    )


WRT = [some for size in (1, 2, 3) for some in combinations(range(4), size)]


@pytest.mark.parametrize("wrt", WRT)
def test_constants_get_no_gradient_and_change_no_other(wrt: tuple[int, ...]) -> None:
    *inputs, mean, variance = inputs_of()

    def of(operator: Operator) -> list[Tensor]:
        def function(*some: Tensor) -> Tensor:
            values = dict(zip(wrt, some, strict=True))
            return operator(*(values.get(place, each) for place, each in enumerate(inputs))) ** 2

        return derivatives(function, [inputs[place] for place in wrt])

    assert_same(of(ours(PLAIN, mean, variance)), of(torchs(PLAIN, mean, variance)))


def test_third_derivatives_are_those_of_torch() -> None:
    *inputs, mean, variance = inputs_of()

    def third(operator: Operator) -> list[Tensor]:
        leaves = [each.clone().requires_grad_() for each in inputs]
        y = operator(*leaves).tanh()
        slopes = torch.autograd.grad((y**3).sum(), leaves, create_graph=True)
        squares = sum((each**2).sum() for each in slopes)
        g = torch.autograd.grad(squares, leaves, create_graph=True)
        return list(torch.autograd.grad(sum((each**2).sum() for each in g), leaves))

    found, expected = third(ours(PLAIN, mean, variance)), third(torchs(PLAIN, mean, variance))
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_the_map_between_the_two_is_not_kept() -> None:
    *inputs, mean, variance = inputs_of(side=32)
    leaves = [channels_last(each).requires_grad_() for each in inputs]
    size = 3 * 6 * 32 * 32 * 8
    constants = {each.untyped_storage().data_ptr() for each in leaves}

    def kept(operator: Operator) -> Tensor:
        y = operator(*leaves)
        return torch.autograd.grad((y**2).sum(), leaves, create_graph=True)[0]

    def apart(x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = convolved(x, kernel, None, PLAIN)
        return normalised(y, weight, bias, Statistics(mean, variance, EPSILON))

    folded_bytes, apart_bytes = (
        saved_bytes(partial(kept, each), constants) for each in (ours(PLAIN, mean, variance), apart)
    )
    # Neither its value nor its slope.
    assert apart_bytes - folded_bytes > 1.9 * size


@pytest.mark.parametrize("offset", [0.0, 1.0, 10.0])
def test_gradients_round_as_those_of_torch(offset: float) -> None:
    given = [each.float() for each in inputs_of(side=16, offset=offset)]
    *inputs, mean, variance = given
    wide = [each.double() for each in given]
    exact = derivatives(torchs(PLAIN, *wide[4:]), wide[:4])
    errors, torchs_errors = (
        [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True) if b.any()]
        for found in (
            derivatives(ours(PLAIN, mean, variance), inputs),
            derivatives(torchs(PLAIN, mean, variance), inputs),
        )
    )
    # A mean of ten deviations takes a digit from the gradient for the weight, fourth of these.
    for place, (a, b) in enumerate(zip(errors, torchs_errors, strict=True)):
        assert a < (3 + 10 * offset * (place == 3)) * b + 1e-7


def test_means_far_from_zero_and_large_kernels_are_not_folded() -> None:
    x, kernel, _, _, mean, variance = inputs_of()
    convolution = Convolved(x, kernel, PLAIN, convolved(x, kernel, None, PLAIN))
    assert is_worth_folding(convolution, Statistics(mean, variance, EPSILON))
    assert not is_worth_folding(convolution, Statistics(100 * mean, variance, EPSILON))
    small = Convolved(x, kernel, PLAIN, convolution.value[:1, :, :2, :2])
    assert not is_worth_folding(small, Statistics(mean, variance, EPSILON))


def test_statistics_that_move_before_the_gradient_are_refused() -> None:
    *inputs, mean, variance = inputs_of()
    y = ours(PLAIN, mean, variance)(inputs[0].requires_grad_(), *inputs[1:])
    mean.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
