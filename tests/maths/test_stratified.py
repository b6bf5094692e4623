"""N_k, Eq. 12 to 21 and the gap E: against every possible draw, and as properties."""

import itertools
from collections.abc import Iterable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf import ConfigError
from cicf.maths.stratified import (
    balanced_counts,
    batch_gradient,
    cluster_moments,
    estimator_error,
    expected_random_gradient,
    expected_stratified_gradient,
    gap,
    global_scope_gradient,
    largest_remainder_counts,
    proportional_counts,
    random_standard_error,
    random_standard_error_approximation,
    stratified_error_bound,
    stratified_part,
    stratified_standard_error,
    stratified_standard_error_approximation,
    variance,
)

pytestmark = pytest.mark.usefixtures("float64")

some_sizes = st.lists(st.integers(1, 40), min_size=1, max_size=12).map(torch.tensor)
quick = settings(max_examples=60, deadline=None)


@st.composite
def sizes_and_m(draw: st.DrawFn) -> tuple[Tensor, int]:
    sizes = draw(some_sizes)
    return sizes, draw(st.integers(1, int(sizes.sum())))


@st.composite
def clustered_gradients(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """Return gradients [n, 3] and the cluster of each, none empty."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    seed = draw(st.integers(0, 10**6))
    cluster = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    stream = torch.Generator().manual_seed(seed)
    shift = torch.randn(len(sizes), 3, generator=stream, dtype=torch.float64)
    noise = torch.randn(len(cluster), 3, generator=stream, dtype=torch.float64)
    return shift[cluster] + noise, cluster


@quick
@given(case=sizes_and_m(), share=st.floats(0, 1, exclude_max=True))
def test_allocation_spends_the_whole_batch(case: tuple[Tensor, int], share: float) -> None:
    sizes, m = case
    n = int(sizes.sum())
    for counts in (
        proportional_counts(sizes, m, int(share * n)),
        largest_remainder_counts(sizes, m),
        balanced_counts(len(sizes), m, turn=int(share * 100)),
    ):
        assert int(counts.sum()) == m
        assert (counts >= 0).all()


@quick
@given(case=sizes_and_m())
def test_systematic_rounding_is_proportional_on_average(case: tuple[Tensor, int]) -> None:
    sizes, m = case
    n = int(sizes.sum())
    counts = torch.stack([proportional_counts(sizes, m, offset) for offset in range(n)])
    assert torch.equal(counts.sum(dim=0), m * sizes)
    assert ((counts * n - m * sizes).abs() < n).all()


@quick
@given(case=sizes_and_m(), share=st.floats(0, 1, exclude_max=True))
def test_proportional_places_never_exceed_the_cluster(
    case: tuple[Tensor, int], share: float
) -> None:
    sizes, m = case
    assert (proportional_counts(sizes, m, int(share * int(sizes.sum()))) <= sizes).all()


def test_counts_are_exact_where_they_divide() -> None:
    sizes = torch.tensor([10, 20, 30, 40])
    for offset in range(100):
        assert proportional_counts(sizes, 10, offset).tolist() == [1, 2, 3, 4]
    assert largest_remainder_counts(sizes, 10).tolist() == [1, 2, 3, 4]


def test_fixed_rounding_starves_small_clusters_and_systematic_does_not() -> None:
    sizes = torch.tensor([1] * 195 + [100])
    assert largest_remainder_counts(sizes, 30)[:-1].sum() < 30
    assert 0 in largest_remainder_counts(sizes, 30)
    over_offsets = sum(proportional_counts(sizes, 30, offset) for offset in range(295))
    assert (over_offsets > 0).all()


@quick
@given(num_clusters=st.integers(1, 30), m=st.integers(1, 60))
def test_balanced_places_are_even_after_one_round(num_clusters: int, m: int) -> None:
    counts = [balanced_counts(num_clusters, m, turn) for turn in range(num_clusters)]
    assert (sum(counts) == m).all()
    assert all(int(count.max() - count.min()) <= 1 for count in counts)


def test_balanced_batch_smaller_than_the_clusters_rotates_over_all() -> None:
    """Office-Home has 195 clusters and outer batches of 84."""
    seen = sum(balanced_counts(195, 84, turn) for turn in range(3))
    assert (seen >= 1).all()
    assert balanced_counts(21, 84, 5).tolist() == [4] * 21


def test_gap_counts_the_places_that_differ() -> None:
    assert gap(torch.tensor([3, 1, 0]), torch.tensor([1, 1, 2])) == 4
    assert gap(torch.tensor([3, 1, 0]), torch.tensor([3, 1, 0])) == 0


def every_batch(g: Tensor, batches: Iterable[tuple[int, ...]]) -> Tensor:
    return torch.stack([batch_gradient(g, torch.tensor(batch)) for batch in batches])


@pytest.mark.parametrize("m", [1, 2, 4, 6])
def test_random_error_is_that_of_all_draws(m: int) -> None:
    g = torch.randn(6, 3)
    estimates = every_batch(g, itertools.combinations(range(6), m))
    mu = global_scope_gradient(g)
    torch.testing.assert_close(estimates.mean(dim=0), expected_random_gradient(g))
    observed = (estimates - mu).square().sum(dim=1).mean()
    torch.testing.assert_close(observed, random_standard_error(variance(g), m=m, n=6))


def test_random_error_approximation_is_that_of_a_large_population() -> None:
    sigma = torch.tensor(2.0)
    exact = random_standard_error(sigma, m=4, n=10**8)
    torch.testing.assert_close(exact, random_standard_error_approximation(sigma, m=4))


def stratified_batches(cluster: Tensor, counts: Tensor) -> Iterable[tuple[int, ...]]:
    members = [(cluster == k).nonzero()[:, 0].tolist() for k in range(len(counts))]
    draws = [
        [
            tuple(each) + tuple(here) * (count // len(here))
            for each in itertools.combinations(here, count % len(here))
        ]
        for here, count in zip(members, counts.tolist(), strict=True)
    ]
    return (sum(choice, ()) for choice in itertools.product(*draws))


CLUSTER = torch.tensor([0, 0, 0, 0, 1, 1, 2])


def test_stratified_error_is_that_of_all_draws_when_places_are_proportional() -> None:
    g, cluster, counts = torch.randn(9, 3), torch.tensor([0] * 6 + [1] * 3), torch.tensor([4, 2])
    clusters = cluster_moments(g, cluster)
    estimates = every_batch(g, stratified_batches(cluster, counts))
    torch.testing.assert_close(estimates.mean(dim=0), global_scope_gradient(g))
    torch.testing.assert_close(expected_stratified_gradient(clusters, counts), g.mean(dim=0))
    observed = (estimates - g.mean(dim=0)).square().sum(dim=1).mean()
    torch.testing.assert_close(observed, stratified_standard_error(clusters, counts))
    torch.testing.assert_close(observed, sum(estimator_error(clusters, counts)))


@pytest.mark.parametrize(
    "counts", [(2, 1, 1), (1, 1, 1), (3, 0, 1), (5, 3, 2), (4, 2, 1), (0, 0, 4)]
)
def test_estimator_error_is_that_of_all_draws_for_any_places(counts: tuple[int, ...]) -> None:
    g, places = torch.randn(7, 3), torch.tensor(counts)
    clusters = cluster_moments(g, CLUSTER)
    estimates = every_batch(g, stratified_batches(CLUSTER, places))
    mean = estimates.mean(dim=0)
    error = estimator_error(clusters, places)
    torch.testing.assert_close(mean, expected_stratified_gradient(clusters, places))
    torch.testing.assert_close(error.variance, (estimates - mean).square().sum(dim=1).mean())
    torch.testing.assert_close(error.bias_squared, (mean - g.mean(dim=0)).square().sum())


def test_stratified_error_needs_a_place_in_every_cluster() -> None:
    clusters = cluster_moments(torch.randn(7, 3), CLUSTER)
    with pytest.raises(ConfigError, match="N_k=0 for cluster 1 of 2"):
        stratified_standard_error(clusters, torch.tensor([3, 0, 1]))
    with pytest.raises(ConfigError, match="N_k=3 for cluster 1 of 2"):
        stratified_standard_error(clusters, torch.tensor([3, 3, 1]))


def test_batch_larger_than_the_population_is_refused() -> None:
    with pytest.raises(ConfigError, match="M=7 must lie between 1 and N=6"):
        random_standard_error(torch.tensor(1.0), m=7, n=6)


def test_cluster_of_one_contributes_nothing() -> None:
    clusters = cluster_moments(torch.randn(3, 2), torch.tensor([0, 1, 2]))
    assert stratified_standard_error(clusters, torch.tensor([1, 1, 1])) == 0


def test_one_cluster_is_random_sampling() -> None:
    g = torch.randn(8, 3)
    clusters = cluster_moments(g, torch.zeros(8, dtype=torch.int64))
    found = stratified_standard_error(clusters, torch.tensor([3]))
    torch.testing.assert_close(found, random_standard_error(variance(g), m=3, n=8))


@quick
@given(case=clustered_gradients())
def test_moments_are_those_of_each_cluster(case: tuple[Tensor, Tensor]) -> None:
    g, cluster = case
    clusters = cluster_moments(g, cluster)
    for k in range(len(clusters.sizes)):
        here = g[cluster == k]
        torch.testing.assert_close(clusters.means[k], here.mean(dim=0))
        torch.testing.assert_close(clusters.variances[k], variance(here))


@quick
@given(case=clustered_gradients(), m=st.integers(1, 20))
def test_stratified_error_never_exceeds_random_for_large_clusters(
    case: tuple[Tensor, Tensor], m: int
) -> None:
    g, cluster = case
    ours = stratified_standard_error_approximation(cluster_moments(g, cluster), m=m)
    assert ours <= random_standard_error_approximation(variance(g), m=m) * (1 + 1e-12)


@quick
@given(case=clustered_gradients(), m=st.integers(1, 20))
def test_bound_by_the_largest_cluster_holds_on_its_left_side(
    case: tuple[Tensor, Tensor], m: int
) -> None:
    g, cluster = case
    bound = stratified_error_bound(cluster_moments(g, cluster), variance(g), m=m)
    assert bound.ours <= bound.largest_cluster * (1 + 1e-12)
    assert bound.ours <= bound.random * (1 + 1e-12)


def test_premise_that_every_cluster_is_tighter_than_the_whole_is_false_in_general() -> None:
    g = torch.tensor([[0.0], [0.0], [0.0], [0.0], [-5.0], [5.0]])
    cluster = torch.tensor([0, 0, 0, 0, 1, 1])
    bound = stratified_error_bound(cluster_moments(g, cluster), variance(g), m=3)
    assert bound.largest_cluster > bound.random
    assert bound.ours <= bound.random


def test_stratified_error_is_below_random_when_clusters_differ() -> None:
    cluster = torch.arange(6).repeat_interleave(20)
    g = torch.randn(120, 4) + 3 * torch.randn(6, 4)[cluster]
    clusters = cluster_moments(g, cluster)
    ours = stratified_standard_error(clusters, torch.full((6,), 5))
    assert ours < 0.5 * random_standard_error(variance(g), m=30, n=120)


@quick
@given(
    cluster=st.lists(st.integers(0, 4), min_size=1, max_size=30),
    part=st.floats(0.01, 1),
    seed=st.integers(0, 10**6),
)
def test_part_of_a_batch_has_every_cluster_and_weighs_as_the_whole(
    cluster: list[int], part: float, seed: int
) -> None:
    strata = torch.tensor(cluster)
    places, weights = stratified_part(strata, part, torch.Generator().manual_seed(seed))
    assert len(set(places.tolist())) == len(places)
    for k, size in zip(*strata.unique(return_counts=True), strict=True):
        here = strata[places] == k
        assert int(here.sum()) == max(1, round(float(size) * part))
        assert float(weights[here].sum()) == pytest.approx(int(size))


def test_weighted_part_estimates_the_sum_without_bias() -> None:
    strata, values = torch.tensor([0] * 5 + [1] * 3), torch.randn(8)
    stream = torch.Generator().manual_seed(0)
    estimates = []
    for _ in range(4000):
        places, weights = stratified_part(strata, 0.4, stream)
        estimates.append((values[places] * weights).sum())
    spread = torch.stack(estimates).std() / 4000**0.5
    assert abs(torch.stack(estimates).mean() - values.sum()) < 4 * spread
