"""A gradient becomes `.grad` as it is only where its memory is nobody else's."""

import pytest
import torch
from torch import Tensor, nn

from cicf import Intervention
from cicf.intervention.accumulation import accumulate

pytestmark = pytest.mark.usefixtures("float64")


def parameters(*shapes: tuple[int, ...]) -> dict[str, Tensor]:
    return {str(k): nn.Parameter(torch.randn(shape)) for k, shape in enumerate(shapes)}


def test_a_gradient_of_its_own_is_taken_as_it_is() -> None:
    (place,) = parameters((3, 2)).values()
    slope = torch.randn(3, 2)
    accumulate({"0": place}, [slope])
    assert place.grad is slope


def test_a_gradient_is_added_to_what_is_there() -> None:
    (place,) = parameters((3, 2)).values()
    place.grad = torch.ones(3, 2)
    accumulate({"0": place}, [torch.full((3, 2), 2.0)])
    assert torch.equal(place.grad, torch.full((3, 2), 3.0))


def test_one_tensor_for_two_parameters_becomes_two() -> None:
    both, slope = parameters((3,), (3,)), torch.ones(3)
    accumulate(both, [slope, slope])
    first, second = both.values()
    first.grad.zero_()
    assert torch.equal(second.grad, torch.ones(3))


@pytest.mark.parametrize(
    "slope",
    [
        torch.randn(4, 2, dtype=torch.float64)[:3],
        torch.randn(2, 3, dtype=torch.float64).t(),
        torch.ones((), dtype=torch.float64).expand(3, 2),
    ],
    ids=["part of a storage", "other strides", "one number for all"],
)
def test_a_gradient_that_lies_otherwise_is_copied(slope: Tensor) -> None:
    (place,) = parameters((3, 2)).values()
    values = slope.clone()
    accumulate({"0": place}, [slope])
    assert place.grad.is_contiguous()
    assert place.grad.untyped_storage().nbytes() == place.grad.nbytes
    assert torch.equal(place.grad, values)


class Summed(nn.Module):
    """Has two parameters whose gradients autograd returns as one tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(4, 3)), nn.Parameter(torch.randn(4, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x) @ (self.a + self.b)


@pytest.mark.parametrize("order", [1, 2])
def test_sums_over_pieces_are_right_where_gradients_share_memory(order: int) -> None:
    inner = torch.randn(8, 4), torch.randint(3, (8,))
    outer = torch.randn(8, 4), torch.randint(3, (8,))
    model, found = Summed(), []
    for chunk in (None, 2):
        model.zero_grad()
        Intervention(model, alpha=0.5, order=order, chunk=chunk).backward(inner, outer)
        found.append([model.a.grad, model.b.grad])
    torch.testing.assert_close(found[1], found[0])
