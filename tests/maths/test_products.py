"""Products of matrices against those of torch, whoever computes them."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from cicf.maths.linear import linear
from cicf.maths.products import product


class Called(TorchDispatchMode):
    """Writes down which products are called."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(
        self, func: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
    ) -> object:
        del types
        name = func.name().split(".")[0]
        self.names += [name] if name in ("aten::mm", "mkldnn::_linear_pointwise") else []
        return func(*args, **(kwargs or {}))


def matrix(rows: int, columns: int, *, is_turned: bool) -> Tensor:
    return torch.randn(columns, rows).t() if is_turned else torch.randn(rows, columns)


@settings(deadline=None)
@given(
    m=st.integers(0, 9),
    k=st.integers(0, 40),
    n=st.integers(0, 9),
    turned=st.tuples(st.booleans(), st.booleans()),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_product_is_that_of_torch(
    m: int, k: int, n: int, turned: tuple[bool, bool], dtype: torch.dtype
) -> None:
    a = matrix(m, k, is_turned=turned[0]).to(dtype)
    b = matrix(k, n, is_turned=turned[1]).to(dtype)
    torch.testing.assert_close(product(a, b), a @ b)


def test_what_has_gaps_in_memory_is_left_to_torch() -> None:
    # oneDNN would take hundreds of times as long.
    dense = torch.randn(4, 4)
    for other in (
        torch.randn(4, 12)[:, ::3],
        torch.randn(4, 10)[:, 2:6],
        torch.ones(1, 1).expand(4, 4),
    ):
        for a, b in ((dense, other), (other, dense), (dense.t(), other.t())):
            with Called() as called:
                found = product(a, b)
            assert called.names == ["aten::mm"]
            torch.testing.assert_close(found, a @ b)


def test_what_is_recorded_can_be_differentiated() -> None:
    a, b = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    slopes = torch.autograd.grad(product(a, b).sum(), (a, b))
    torch.testing.assert_close(slopes, torch.autograd.grad((a @ b).sum(), (a, b)))


@pytest.mark.parametrize("wrt", [0, 1, 2])
def test_a_linear_layer_has_a_third_derivative_in_single_precision(wrt: int) -> None:
    inputs = [torch.randn(shape, requires_grad=True) for shape in ((4, 3), (2, 3), (2,))]

    def third(operator: object) -> Tensor:
        found = (operator(*inputs) ** 3).sum()
        for _ in range(3):
            (slope,) = torch.autograd.grad(found, inputs[wrt], create_graph=True)
            found = (slope * torch.arange(1.0, slope.numel() + 1).view_as(slope)).sum()
        return found.detach()

    torch.testing.assert_close(third(linear), third(F.linear), rtol=1e-4, atol=1e-4)
