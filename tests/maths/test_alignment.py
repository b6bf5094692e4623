"""Distances between domains, against sums over samples written out one by one."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.alignment import (
    Pairs,
    contrastive_alignment,
    coral,
    cross_domain_pairs,
    mmd_squared,
    squared_distances,
)

pytestmark = pytest.mark.usefixtures("float64")
quick = settings(max_examples=15, deadline=None)
GAMMAS = (0.5, 0.1, 2.0)


def rows(count: int, size: int = 5, *, seed: int = 0) -> Tensor:
    return torch.randn(count, size, generator=torch.Generator().manual_seed(seed))


def mixed_domains(count: int, seed: int = 0) -> Tensor:
    """Return domains with gaps in their numbers, in no order."""
    stream = torch.Generator().manual_seed(seed)
    return torch.tensor([1, 4, 9])[torch.randint(3, (count,), generator=stream)]


def coral_of_two(a: np.ndarray, b: np.ndarray) -> float:
    """Return the two means over entries, each entry written out."""
    size = a.shape[1]
    total_mean, total_covariance = 0.0, 0.0
    for p in range(size):
        total_mean += (a[:, p].mean() - b[:, p].mean()) ** 2
        for q in range(size):
            entries = []
            for z in (a, b):
                products = [(r[p] - z[:, p].mean()) * (r[q] - z[:, q].mean()) for r in z]
                entries.append(sum(products) / (len(z) - 1))
            total_covariance += (entries[0] - entries[1]) ** 2
    return float(total_mean / size + total_covariance / size**2)


def mmd_of_two(a: np.ndarray, b: np.ndarray, gammas: tuple[float, ...]) -> float:
    def mean_kernel(one: np.ndarray, other: np.ndarray) -> float:
        values = [
            sum(math.exp(-gamma * float(((u - v) ** 2).sum())) for gamma in gammas)
            for u in one
            for v in other
        ]
        return sum(values) / len(values)

    return mean_kernel(a, a) + mean_kernel(b, b) - 2 * mean_kernel(a, b)


def contrastive_by_pairs(z: np.ndarray, y: list[int], d: list[int], margin: float) -> float:
    values = []
    for u in range(len(z)):
        for v in range(u + 1, len(z)):
            if d[u] == d[v]:
                continue
            e = math.sqrt(max(float(((z[u] - z[v]) ** 2).sum()), 1e-8))
            values.append(e**2 if y[u] == y[v] else max(0.0, margin - e) ** 2)
    return sum(values) / len(values)


@pytest.mark.parametrize("seed", [0, 1])
def test_coral_is_the_mean_over_pairs_of_differences_of_moments(seed: int) -> None:
    features, domain = rows(14, seed=seed), mixed_domains(14, seed)
    z = [features[domain == each].numpy() for each in (1, 4, 9)]
    expected = sum(coral_of_two(z[i], z[j]) for i, j in ((0, 1), (0, 2), (1, 2))) / 3
    assert float(coral(features, domain)) == pytest.approx(expected, rel=1e-10)


def test_a_domain_with_one_row_takes_no_part_in_coral() -> None:
    features, domain = rows(9), torch.tensor([0, 0, 0, 0, 2, 2, 2, 2, 1])
    expected = coral_of_two(features[:4].numpy(), features[4:8].numpy())
    assert float(coral(features, domain)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("domain", [[0, 0, 0, 0], [0, 0, 0, 1], [0, 1, 2, 3]])
def test_coral_without_two_domains_to_compare_is_zero(domain: list[int]) -> None:
    assert float(coral(rows(4), torch.tensor(domain))) == 0


def test_coral_has_the_gradient_of_finite_differences() -> None:
    features, domain = rows(11, 3).requires_grad_(), mixed_domains(11)
    assert torch.autograd.gradcheck(lambda z: coral(z, domain), (features,))
    assert torch.autograd.gradgradcheck(lambda z: coral(z, domain), (features,))


@quick
@given(seed=st.integers(0, 1000))
def test_coral_and_mmd_do_not_see_the_order_of_a_batch(seed: int) -> None:
    features, domain = rows(12, seed=seed), mixed_domains(12, seed)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed))
    for distance in (coral, lambda z, d: mmd_squared(z, d, GAMMAS)):
        torch.testing.assert_close(
            distance(features[order], domain[order]), distance(features, domain)
        )


@pytest.mark.parametrize("seed", [0, 1])
def test_mmd_is_what_the_means_of_the_kernel_come_to(seed: int) -> None:
    features, domain = rows(13, seed=seed), mixed_domains(13, seed)
    z = [features[domain == each].numpy() for each in (1, 4, 9)]
    found = mmd_squared(features, domain, GAMMAS)
    assert found.shape == (3, 3)
    for i in range(3):
        for j in range(3):
            assert float(found[i, j]) == pytest.approx(
                mmd_of_two(z[i], z[j], GAMMAS), rel=1e-10, abs=1e-12
            )


@quick
@given(seed=st.integers(0, 1000), count=st.integers(2, 10))
def test_mmd_is_never_below_zero_and_zero_on_the_diagonal(seed: int, count: int) -> None:
    table = mmd_squared(rows(count, seed=seed), mixed_domains(count, seed), GAMMAS)
    assert table.min() > -1e-12
    assert table.diagonal().abs().max() < 1e-12


def test_mmd_of_a_domain_with_one_row_is_finite() -> None:
    features = rows(5)
    found = mmd_squared(features, torch.tensor([0, 0, 0, 0, 1]), (0.5,))
    expected = mmd_of_two(features[:4].numpy(), features[4:].numpy(), (0.5,))
    assert float(found[0, 1]) == pytest.approx(expected, rel=1e-10)


def test_mmd_has_the_gradient_of_finite_differences() -> None:
    features, domain = rows(8, 3).requires_grad_(), mixed_domains(8)
    assert torch.autograd.gradcheck(lambda z: mmd_squared(z, domain, GAMMAS), (features,))
    assert torch.autograd.gradgradcheck(lambda z: mmd_squared(z, domain, GAMMAS), (features,))


@pytest.mark.parametrize("margin", [1.0, 2.5])
def test_contrastive_alignment_is_the_mean_over_pairs_across_domains(margin: float) -> None:
    features, y, domain = 0.5 * rows(12), torch.arange(12) % 3, mixed_domains(12)
    found = contrastive_alignment(features, cross_domain_pairs(y, domain), margin=margin)
    expected = contrastive_by_pairs(features.numpy(), y.tolist(), domain.tolist(), margin)
    assert float(found) == pytest.approx(expected, rel=1e-10)


def test_pairs_lie_across_domains_and_come_once() -> None:
    y, domain = torch.tensor([0, 0, 1, 0]), torch.tensor([3, 7, 7, 7])
    pairs = cross_domain_pairs(y, domain)
    assert pairs.alike.nonzero().tolist() == [[0, 1], [0, 3]]
    assert pairs.unlike.nonzero().tolist() == [[0, 2]]


def test_pairs_of_two_classes_beyond_the_margin_do_not_count_as_distance() -> None:
    features = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.3, 0.4]])
    pairs = cross_domain_pairs(torch.tensor([0, 1, 1]), torch.tensor([0, 1, 1]))
    found = contrastive_alignment(features, pairs, margin=1.0)
    assert float(found) == pytest.approx((0 + 0.5**2) / 2, rel=1e-12)


def test_contrastive_alignment_without_pairs_is_zero() -> None:
    none = torch.zeros(4, 4, dtype=torch.bool)
    assert float(contrastive_alignment(rows(4), Pairs(none, none), margin=1.0)) == 0


def test_rows_that_coincide_have_a_finite_slope() -> None:
    features = torch.ones(4, 3).requires_grad_()
    pairs = cross_domain_pairs(torch.tensor([0, 1, 0, 1]), torch.tensor([0, 0, 1, 1]))
    contrastive_alignment(features, pairs, margin=1.0).backward()
    assert features.grad is not None
    assert features.grad.isfinite().all()


def test_contrastive_alignment_has_the_gradient_of_finite_differences() -> None:
    features, y = (0.5 * rows(9, 3)).requires_grad_(), torch.arange(9) % 3
    pairs = cross_domain_pairs(y, mixed_domains(9))
    assert pairs.alike.any()
    assert torch.autograd.gradcheck(
        lambda z: contrastive_alignment(z, pairs, margin=1.3), (features,)
    )


def test_distances_far_from_the_origin_keep_their_digits() -> None:
    near = rows(6).float()
    far = squared_distances(near + 1000)
    expected = (near[:, None] - near[None]).double().square().sum(2)
    torch.testing.assert_close(far.double(), expected, rtol=1e-3, atol=1e-3)
