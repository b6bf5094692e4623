"""Eq. 19 with N_k as it stands, and with N_k in whole numbers, against every possible draw."""

import itertools

import pytest
import torch
from torch import Tensor

from cicf.maths.rounded import proportional_standard_error, rounded_error, systematic_counts
from cicf.maths.stratified import (
    cluster_moments,
    proportional_counts,
    random_standard_error,
    stratified_standard_error,
    variance,
)

pytestmark = pytest.mark.usefixtures("float64")


def by_all_draws(g: Tensor, cluster: Tensor, m: int) -> float:
    """Return E‖ĝ − μ‖² over all offsets of the rounding, and all batches that each allows."""
    sizes = cluster.bincount().tolist()
    members = [(cluster == k).nonzero()[:, 0].tolist() for k in range(len(sizes))]
    means = []
    for offset in range(len(g)):
        edges = [0, *itertools.accumulate(sizes)]
        places = [(edge * m + offset) // len(g) for edge in edges]
        counts = [b - a for a, b in itertools.pairwise(places)]
        choices = itertools.product(
            *(itertools.combinations(own, n) for own, n in zip(members, counts, strict=True))
        )
        squares = [
            float((g[list(itertools.chain(*batch))].mean(dim=0) - g.mean(dim=0)).square().sum())
            for batch in choices
        ]
        means.append(sum(squares) / len(squares))
    return sum(means) / len(means)


@pytest.mark.parametrize("m", [1, 2, 3, 5])
def test_rounded_error_is_that_of_all_draws(m: int) -> None:
    cluster = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2])
    g = torch.randn(8, 3) + 2 * torch.randn(3, 3)[cluster]
    found = rounded_error(cluster_moments(g, cluster), systematic_counts(cluster.bincount(), m))
    assert float(found) == pytest.approx(by_all_draws(g, cluster, m))


def test_counts_are_those_of_every_offset() -> None:
    sizes = torch.tensor([3, 1, 5, 2])
    rows = torch.stack([proportional_counts(sizes, 4, offset) for offset in range(11)])
    assert torch.equal(systematic_counts(sizes, 4), rows)
    assert len(rows.unique(dim=0)) <= len(sizes)


def test_equation_19_is_met_where_places_are_whole_numbers() -> None:
    cluster = torch.tensor([0] * 4 + [1] * 8 + [2] * 12)
    g = torch.randn(24, 5) + torch.randn(3, 5)[cluster]
    clusters, counts = cluster_moments(g, cluster), torch.tensor([2, 4, 6])
    expected = stratified_standard_error(clusters, counts)
    assert torch.allclose(proportional_standard_error(clusters, m=12), expected)
    rows = systematic_counts(clusters.sizes, 12)
    assert torch.allclose(rounded_error(clusters, rows), expected)


def test_rounding_only_adds_to_equation_19_when_clusters_are_large() -> None:
    cluster = torch.arange(120) % 7
    g = torch.randn(120, 4) + 3 * torch.randn(7, 4)[cluster]
    clusters = cluster_moments(g, cluster)
    rounded = rounded_error(clusters, systematic_counts(clusters.sizes, 10))
    assert rounded > proportional_standard_error(clusters, m=10)


def test_one_cluster_is_random_sampling() -> None:
    g = torch.randn(20, 3)
    clusters = cluster_moments(g, torch.zeros(20, dtype=torch.int64))
    expected = random_standard_error(variance(g), m=6, n=20)
    assert torch.allclose(proportional_standard_error(clusters, m=6), expected)


def test_clusters_of_one_image_leave_no_error_to_equation_19() -> None:
    clusters = cluster_moments(torch.randn(5, 2), torch.arange(5))
    assert float(proportional_standard_error(clusters, m=3)) == 0
