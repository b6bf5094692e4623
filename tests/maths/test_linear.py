"""The linear layer against torch's own, value and derivatives."""

import pytest
import torch
import torch.nn.functional as F
from tests.support.derivatives import assert_same, derivatives
from torch import Tensor

from cicf.maths.linear import linear

pytestmark = pytest.mark.usefixtures("float64")


@pytest.mark.parametrize("shape", [(5,), (4, 5), (1, 5), (2, 3, 5), (2, 1, 3, 5)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_linear_is_that_of_torch(shape: tuple[int, ...], has_bias: bool) -> None:
    inputs = [torch.randn(shape), torch.randn(3, 5), *([torch.randn(3)] if has_bias else [])]

    def ours(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return linear(x, weight, bias) ** 2

    def torchs(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return F.linear(x, weight, bias) ** 2

    assert_same(derivatives(ours, inputs), derivatives(torchs, inputs))


@pytest.mark.parametrize("wrt", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
def test_constants_get_no_gradient_and_change_no_other(wrt: tuple[int, ...]) -> None:
    inputs = [torch.randn(4, 5), torch.randn(3, 5), torch.randn(3)]

    def of(operator: object) -> list[Tensor]:
        def function(*some: Tensor) -> Tensor:
            values = dict(zip(wrt, some, strict=True))
            return operator(*(values.get(place, each) for place, each in enumerate(inputs))) ** 2

        return derivatives(function, [inputs[place] for place in wrt])

    assert_same(of(linear), of(F.linear))


def test_gradient_passes_finite_differences_twice() -> None:
    inputs = [torch.randn(shape, requires_grad=True) for shape in ((4, 3), (2, 3), (2,))]
    assert torch.autograd.gradcheck(linear, inputs)
    assert torch.autograd.gradgradcheck(linear, inputs)


def test_rows_are_not_a_view() -> None:
    # What is a view would not be rectified in place by our own operator.
    x, weight = torch.randn(4, 5), torch.randn(3, 5, requires_grad=True)
    assert not linear(x, weight, None)._is_view()
