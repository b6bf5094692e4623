"""Mean cosines within and between clusters, against a loop over pairs of images."""

import itertools
from statistics import fmean

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.agreement import agreement, cosines, resampled

pytestmark = pytest.mark.usefixtures("float64")

CLUSTER = torch.tensor([0, 1, 2, 0, 1, 2, 0, 3, 0, 4])
LABEL = torch.tensor([0, 0, 1, 1, 2])
"""Clusters of 4, 2, 2, 1 and 1 images; the last two make no pairs, and the last has no sister."""


def by_loops(g: Tensor, copies: list[int]) -> tuple[float, float, float]:
    """Return the three means over a list with copies, in which copies of an image make no pair."""
    images = [i for i, count in enumerate(copies) for _ in range(count)]
    kinds: list[list[float]] = [[], [], []]
    weights = []
    for k in range(3):
        pairs: list[list[float]] = [[], [], []]
        for i, j in itertools.product(images, images):
            a, b = int(CLUSTER[i]), int(CLUSTER[j])
            if a != k or i == j:
                continue
            cosine = float(F.cosine_similarity(g[i], g[j], dim=0))
            if a == b:
                pairs[0].append(cosine)
            else:
                pairs[2].append(cosine)
                if LABEL[a] == LABEL[b]:
                    pairs[1].append(cosine)
        weights.append(sum(int(CLUSTER[i]) == k for i in images))
        for kind, values in zip(kinds, pairs, strict=True):
            kind.append(fmean(values))
    total = sum(weights)
    means = [sum(w * v for w, v in zip(weights, kind, strict=True)) / total for kind in kinds]
    return means[0], means[1], means[2]


@pytest.mark.parametrize("copies", [[1] * 10, [2, 1, 1, 0, 3, 1, 2, 1, 0, 1]])
def test_means_are_those_of_a_loop_over_pairs(copies: list[int]) -> None:
    g = torch.randn(10, 4)
    found = agreement(
        cosines(g @ g.T), CLUSTER, LABEL, weight=torch.tensor(copies, dtype=torch.float64)
    )
    assert torch.allclose(torch.stack(found), torch.tensor(by_loops(g, copies)))


def test_lengths_do_not_matter() -> None:
    g = torch.randn(10, 4)
    longer = g * torch.arange(1.0, 11.0)[:, None]
    assert torch.allclose(cosines(g @ g.T), cosines(longer @ longer.T))


def test_clusters_of_one_direction_agree_fully() -> None:
    g = torch.eye(5)[CLUSTER]
    found = agreement(cosines(g @ g.T), CLUSTER, LABEL, weight=torch.ones(10))
    assert [float(each) for each in found] == [1.0, 0.0, 0.0]


def test_without_two_clusters_in_a_class_there_is_nothing_to_compare_there() -> None:
    g = torch.randn(6, 3)
    cluster = torch.tensor([0, 0, 0, 1, 1, 1])
    found = agreement(cosines(g @ g.T), cluster, torch.tensor([0, 1]), weight=torch.ones(6))
    assert found.same_class.isnan()
    assert found.within.isfinite()
    assert found.elsewhere.isfinite()


def test_without_a_pair_in_any_cluster_there_is_no_mean() -> None:
    g = torch.randn(3, 3)
    found = agreement(
        cosines(g @ g.T), torch.arange(3), torch.tensor([0, 0, 1]), weight=torch.ones(3)
    )
    assert all(each.isnan() for each in found)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_a_resample_keeps_the_size_of_every_cluster(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    found = resampled(CLUSTER, count=5, generator=stream)
    sizes = CLUSTER.bincount().double()
    member = F.one_hot(CLUSTER, 5).double()
    assert torch.equal(found @ member, sizes.expand(5, 5))


def test_every_image_is_resampled_once_on_average() -> None:
    found = resampled(CLUSTER, count=4000, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(found.mean(dim=0), torch.ones(10), atol=0.1)
    assert bool((found[:, 7] == 1).all())
