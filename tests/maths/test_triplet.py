"""The triplet loss with semi-hard negatives, against loops over its definition."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.triplet import semi_hard_negatives, semi_hard_triplet_loss, squared_distances


def by_loops(z: np.ndarray, y: np.ndarray, margin: float) -> float:
    """Return the mean over pairs (a, p) of [m + D_ap − D_an]₊, n looked for one by one."""
    losses = []
    for a in range(len(y)):
        for p in range(len(y)):
            if a == p or y[a] != y[p]:
                continue
            near = float(np.sum((z[a] - z[p]) ** 2))
            negatives = [float(np.sum((z[a] - z[n]) ** 2)) for n in range(len(y)) if y[n] != y[a]]
            if not negatives:
                continue
            beyond = [each for each in negatives if each > near]
            chosen = min(beyond) if beyond else max(negatives)
            losses.append(max(0.0, margin + near - chosen))
    return sum(losses) / len(losses) if losses else 0.0


def points(count: int, classes: int, seed: int) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    z = 2 * torch.randn(count, 5, generator=stream, dtype=torch.float64)
    return z, torch.randint(classes, (count,), generator=stream)


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 14),
    classes=st.integers(1, 5),
    seed=st.integers(0, 99),
    margin=st.sampled_from([0.0, 1.0, 10.0, 100.0]),
)
def test_the_loss_is_what_its_definition_says(
    count: int, classes: int, seed: int, margin: float
) -> None:
    z, y = points(count, classes, seed)
    found = semi_hard_triplet_loss(z, y, margin=margin)
    assert float(found) == pytest.approx(by_loops(z.numpy(), y.numpy(), margin), abs=1e-10)


@pytest.mark.parametrize(
    ("far", "chosen"),
    [
        pytest.param([1.0, 3.0, 5.0], 9.0, id="the nearest that is farther than the positive"),
        pytest.param([0.5, 1.0, 1.5], 2.25, id="the farthest, if none is farther"),
        pytest.param([1.0, 2.0, 4.0], 16.0, id="one as far as the positive is not farther"),
    ],
)
def test_the_negative_of_a_pair(far: list[float], chosen: float) -> None:
    z = torch.tensor([[0.0], [2.0], *([-each] for each in far)], dtype=torch.float64)
    y = torch.tensor([0, 0, 1, 1, 1])
    assert float(semi_hard_negatives(squared_distances(z), y)[0, 1]) == chosen


def test_by_hand() -> None:
    z = torch.tensor([[0.0], [2.0], [-3.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 1])
    # (a, p) = (0, 1): D_ap = 4, D_an = 9; (1, 0): D_ap = 4, D_an = 25.
    assert float(semi_hard_triplet_loss(z, y, margin=10.0)) == (10 + 4 - 9) / 2


@pytest.mark.parametrize(
    "y", [[0, 0, 0, 0], [0, 1, 2, 3]], ids=["no negative", "no pair of a class"]
)
def test_without_triplets_the_loss_and_its_gradient_are_zero(y: list[int]) -> None:
    z = torch.randn(4, 3, requires_grad=True)
    loss = semi_hard_triplet_loss(z, torch.tensor(y), margin=10.0)
    (g,) = torch.autograd.grad(loss, z)
    assert loss == 0
    assert not g.any()


def test_classes_far_apart_have_no_loss() -> None:
    z, y = points(12, 2, seed=0)
    apart = z / 100 + 10.0 * y[:, None]
    assert semi_hard_triplet_loss(apart, y, margin=10.0) == 0


def test_the_gradient_is_the_slope_with_the_negatives_as_they_are() -> None:
    z, y = points(10, 3, seed=3)

    def loss(z: Tensor) -> Tensor:
        return semi_hard_triplet_loss(z, y, margin=10.0)

    assert loss(z) > 0
    assert torch.autograd.gradcheck(loss, (z.requires_grad_(),))


def test_equal_points_have_no_distance() -> None:
    z = torch.full((3, 4), 0.1).requires_grad_()
    distances = squared_distances(z)
    assert not distances.any()
    assert torch.autograd.grad(distances.sum(), z)[0].isfinite().all()
