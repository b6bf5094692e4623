"""The losses of matched images, against loops over pairs of them."""

import math
from statistics import fmean

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.contrast import match_contrast, match_distance

pytestmark = pytest.mark.usefixtures("float64")

quick = settings(max_examples=20, deadline=None)
DOMAIN = torch.tensor([[0, 1, 2]]).expand(4, 3)
Y = torch.tensor([0, 1, 1, 2])[:, None].expand(4, 3)


def random(*shape: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=stream, dtype=torch.float64)


def contrast_by_loops(z: Tensor, y: Tensor, domain: Tensor, tau: float) -> float:
    """Return the mean over anchors and partners, one pair after the other."""
    rows = z.detach().numpy()
    groups, members = y.shape

    def similarity(a: tuple[int, int], b: tuple[int, int]) -> float:
        one, other = rows[a], rows[b]
        return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))

    every = [(g, d) for g in range(groups) for d in range(members)]
    losses = []
    for g, i in every:
        negative = [math.exp(similarity((g, i), n) / tau) for n in every if y[n] != y[g, i]]
        for j in range(members):
            if domain[g, i] == domain[g, j] or not negative:
                continue
            positive = math.exp(similarity((g, i), (g, j)) / tau)
            losses.append(-math.log(positive / (positive + sum(negative))))
    return fmean(losses) if losses else 0.0


@quick
@given(seed=st.integers(0, 99), tau=st.sampled_from([0.05, 0.2, 1.0]))
def test_the_contrast_is_the_mean_over_ordered_pairs_of_a_group(seed: int, tau: float) -> None:
    torch.set_default_dtype(torch.float64)
    z = random(4, 3, 5, seed=seed)
    found = match_contrast(z, Y, DOMAIN, tau=tau)
    assert float(found) == pytest.approx(contrast_by_loops(z, Y, DOMAIN, tau), abs=1e-10)


def test_images_that_stand_in_for_a_missing_domain_are_no_partners() -> None:
    z, domain = random(4, 3, 5), DOMAIN.clone()
    domain[1, 2] = domain[1, 0]
    found = match_contrast(z, Y, domain, tau=0.1)
    assert float(found) == pytest.approx(contrast_by_loops(z, Y, domain, 0.1), abs=1e-10)
    assert float(found) != pytest.approx(contrast_by_loops(z, Y, DOMAIN, 0.1), abs=1e-4)


def test_two_equal_images_against_an_opposite_one_lose_almost_nothing() -> None:
    z = torch.tensor([[[1.0, 0.0], [3.0, 0.0]], [[-1.0, 0.0], [-2.0, 0.0]]])
    y, domain = torch.tensor([[0, 0], [1, 1]]), torch.tensor([[0, 1], [0, 1]])
    found = match_contrast(z, y, domain, tau=1.0)
    assert float(found) == pytest.approx(math.log(1 + 2 * math.exp(-2)), abs=1e-12)


@pytest.mark.parametrize("size", [1e-3, 1e3])
def test_the_contrast_knows_directions_and_no_lengths(size: float) -> None:
    z = random(4, 3, 5)
    found = [match_contrast(each, Y, DOMAIN, tau=0.1) for each in (z, z * size)]
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


def test_a_batch_of_one_class_has_no_contrast_and_no_gradient() -> None:
    z = random(4, 3, 5).requires_grad_()
    found = match_contrast(z, torch.zeros_like(Y), DOMAIN, tau=0.1)
    assert found.item() == 0
    assert torch.equal(torch.autograd.grad(found, z)[0], torch.zeros(4, 3, 5))


@pytest.mark.parametrize("tau", [0.05, 0.5])
def test_the_gradient_of_the_contrast_is_that_of_finite_differences(tau: float) -> None:
    z = random(4, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: match_contrast(z, Y, DOMAIN, tau=tau), z)


def test_single_precision_does_not_overflow_at_a_low_temperature() -> None:
    z = random(4, 3, 5).float().requires_grad_()
    found = match_contrast(z, Y, DOMAIN, tau=0.005)
    assert torch.autograd.grad(found, z)[0].isfinite().all()
    exact = match_contrast(z.double(), Y, DOMAIN, tau=0.005)
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)


def test_the_distance_is_the_mean_over_pairs_of_a_group() -> None:
    logits = random(4, 3, 5)
    squares = [
        float(((logits[g, i] - logits[g, j]) ** 2).sum())
        for g in range(4)
        for i in range(3)
        for j in range(i)
    ]
    assert float(match_distance(logits, DOMAIN)) == pytest.approx(fmean(squares), abs=1e-10)


def test_the_distance_to_a_stand_in_is_not_counted() -> None:
    logits, domain = random(1, 3, 5), torch.tensor([[0, 0, 2]])
    squares = [float(((logits[0, i] - logits[0, 2]) ** 2).sum()) for i in (0, 1)]
    assert float(match_distance(logits, domain)) == pytest.approx(fmean(squares), abs=1e-10)


def test_the_gradient_of_the_distance_is_that_of_finite_differences() -> None:
    logits = random(4, 3, 5).requires_grad_()
    assert torch.autograd.gradcheck(lambda logits: match_distance(logits, DOMAIN), logits)


def test_a_group_of_one_domain_has_no_distance() -> None:
    logits = random(2, 3, 5).requires_grad_()
    found = match_distance(logits, torch.zeros(2, 3, dtype=torch.int64))
    assert found.item() == 0
    assert torch.equal(torch.autograd.grad(found, logits)[0], torch.zeros(2, 3, 5))
