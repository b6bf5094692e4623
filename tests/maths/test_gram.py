"""Inner products of gradients in pieces, and gradients made of inner products."""

from collections.abc import Generator

import pytest
import torch
from torch import Tensor

from cicf.maths.gram import coordinates, gradients_to_compute, gram

pytestmark = pytest.mark.usefixtures("float64")


def finished(work: Generator[int, None, Tensor]) -> tuple[list[int], Tensor]:
    told = []
    while True:
        try:
            told.append(next(work))
        except StopIteration as ended:
            return told, ended.value


@pytest.mark.parametrize(("held", "chunk"), [(7, 7), (7, 2), (3, 2), (2, 2), (1, 1), (5, 4)])
def test_pieces_of_any_size_give_all_inner_products(held: int, chunk: int) -> None:
    g = torch.randn(7, 11)
    told, found = finished(gram(lambda low, high: g[low:high], 7, held=held, chunk=chunk))
    assert torch.allclose(found, g @ g.T)
    assert told == sorted(told)
    assert told[-1] == gradients_to_compute(7, held)


def test_what_fits_is_computed_once_and_the_rest_again() -> None:
    assert gradients_to_compute(100, 100) == 100
    assert gradients_to_compute(100, 50) == 150
    assert gradients_to_compute(4, 1) == 4 + 3 + 2 + 1


def test_pieces_never_hold_more_gradients_than_allowed() -> None:
    asked = []

    def rows(low: int, high: int) -> Tensor:
        asked.append(high - low)
        return torch.ones(high - low, 2)

    finished(gram(rows, 10, held=4, chunk=3))
    assert max(asked) == 3


@pytest.mark.parametrize("p", [3, 40])
def test_coordinates_have_the_distances_of_the_gradients(p: int) -> None:
    g = torch.randn(9, p)
    found = coordinates(g @ g.T)
    assert torch.allclose(torch.cdist(found, found), torch.cdist(g, g), atol=1e-6)
    mean = g.mean(dim=0)
    assert torch.allclose((found.mean(dim=0)).norm(), mean.norm())
    batch = torch.tensor([0, 4, 4, 7])
    deviation = (found[batch].mean(dim=0) - found.mean(dim=0)).norm()
    assert torch.allclose(deviation, (g[batch].mean(dim=0) - mean).norm())
