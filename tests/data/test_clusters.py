"""k-means within each class."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans, MiniBatchKMeans
from threadpoolctl import threadpool_limits
from torch import Tensor

from cicf import Clustering, ConfigError, DataError, Strata, cluster_by_class
from cicf.data import bic, strata_of
from cicf.data.clusters import MOST_WHOLE


def blobs(centres: int, size: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return points around distant centres, and the centre of each."""
    stream = torch.Generator().manual_seed(seed)
    which = torch.arange(centres).repeat_interleave(size)
    return 20 * torch.eye(centres, 8)[which] + torch.randn(len(which), 8, generator=stream), which


def test_clusters_are_the_blobs_of_each_class() -> None:
    x, which = blobs(6, 10)
    strata = cluster_by_class(x, which // 3, clusters_per_class=3, seed=0)
    assert strata.cluster.tolist() == which.tolist()
    assert strata.label.tolist() == [0, 0, 0, 1, 1, 1]
    assert strata.sizes.tolist() == [10] * 6


def test_no_cluster_spans_two_classes() -> None:
    x, y = torch.randn(60, 4), torch.randint(4, (60,))
    strata = cluster_by_class(x, y, clusters_per_class=3, seed=0)
    assert torch.equal(strata.label[strata.cluster], y)


def test_same_seed_gives_the_same_clusters() -> None:
    x, y = torch.randn(200, 5), torch.randint(3, (200,))
    first, second = (cluster_by_class(x, y, seed=7) for _ in range(2))
    assert torch.equal(first.cluster, second.cluster)


def test_a_class_does_not_depend_on_the_others() -> None:
    x, y = torch.randn(120, 5), torch.arange(120) % 3
    all_classes = cluster_by_class(x, y, seed=1)
    alone = cluster_by_class(x[y == 2], y[y == 2], seed=1)
    first = all_classes.cluster[y == 2].min()
    assert torch.equal(all_classes.cluster[y == 2] - first, alone.cluster)


def test_small_class_gets_as_many_clusters_as_it_has_images() -> None:
    x, y = torch.randn(12, 3), torch.tensor([0] * 10 + [1] * 2)
    strata = cluster_by_class(x, y, clusters_per_class=3)
    assert strata.label.tolist() == [0, 0, 0, 1, 1]


def test_duplicates_share_a_cluster_and_none_is_left_empty() -> None:
    x = torch.tensor([[0.0], [0.0], [0.0], [1.0], [1.0]])
    strata = cluster_by_class(x, [4] * 5, clusters_per_class=3)
    assert strata.cluster.tolist() == [0, 0, 0, 1, 1]
    assert strata.label.tolist() == [4, 4]


def test_labels_may_have_gaps_and_features_may_be_numpy() -> None:
    strata = cluster_by_class(
        np.random.default_rng(0).normal(size=(20, 3)), np.array([7] * 10 + [90] * 10)
    )
    assert strata.by_class.label.tolist() == [7, 90]


def test_auto_finds_the_number_of_blobs_in_each_class() -> None:
    x, which = blobs(5, 40)
    y = (which >= 2).long()
    strata = cluster_by_class(x, y, clusters_per_class="auto")
    assert strata.label.tolist() == [0, 0, 1, 1, 1]


def test_auto_leaves_one_blob_in_one_piece() -> None:
    strata = cluster_by_class(torch.randn(200, 4), [0] * 200, clusters_per_class="auto")
    assert strata.count == 1


def test_auto_survives_classes_of_one_image_and_of_one_image_repeated() -> None:
    x = torch.cat([torch.ones(1, 2), torch.zeros(6, 2)])
    strata = cluster_by_class(x, [0] + [1] * 6, clusters_per_class="auto")
    assert strata.count == 2


def test_bic_is_the_log_likelihood_less_its_penalty() -> None:
    """Against the densities themselves: Σ log(w_k N(x | μ_k, s² I)) − p/2 log n."""
    rng = np.random.default_rng(0)
    x, groups = rng.normal(size=(30, 2)), np.arange(30) % 3
    means = np.stack([x[groups == k].mean(axis=0) for k in range(3)])
    variance = ((x - means[groups]) ** 2).sum() / (2 * (30 - 3))
    weights = np.bincount(groups) / 30
    squares = ((x - means[groups]) ** 2).sum(axis=1)
    log_density = np.log(weights[groups]) - np.log(2 * np.pi * variance) - squares / (2 * variance)
    num_parameters = (3 - 1) + 3 * 2 + 1
    expected = log_density.sum() - num_parameters / 2 * np.log(30)
    assert bic(x, groups) == pytest.approx(expected)


def test_bic_of_single_precision_is_that_of_double() -> None:
    x = (100 + np.random.default_rng(0).normal(size=(5000, 4))).astype(np.float32)
    groups = np.arange(5000) % 3
    assert bic(x, groups) == pytest.approx(bic(x.astype(np.float64), groups), rel=1e-9)


def test_double_precision_is_kept_where_it_is_needed() -> None:
    x = 1e9 + torch.tensor([0.0, 1.0]).double().repeat(20)[:, None]
    assert cluster_by_class(x, [0] * 40, clusters_per_class=2).cluster.tolist() == [0, 1] * 20


def inertia(x: Tensor, cluster: Tensor) -> float:
    parts = [x[cluster == k].double() for k in cluster.unique()]
    return sum(float((part - part.mean(dim=0)).square().sum()) for part in parts)


def test_only_classes_above_the_threshold_are_read_in_mini_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    fit = MiniBatchKMeans.fit

    def counted(self: MiniBatchKMeans, x: np.ndarray) -> MiniBatchKMeans:
        sizes.append(len(x))
        return fit(self, x)

    monkeypatch.setattr(MiniBatchKMeans, "fit", counted)
    y = torch.tensor([0] * MOST_WHOLE + [1] * (MOST_WHOLE + 1))
    cluster_by_class(torch.randn(len(y), 2), y, seed=0)
    assert sizes == [MOST_WHOLE + 1]


def test_clusters_of_a_large_class_are_its_blobs() -> None:
    x, which = blobs(3, 2000)
    strata = cluster_by_class(x, torch.zeros_like(which), clusters_per_class=3)
    assert torch.equal(strata.cluster, which)


def test_large_class_keeps_a_cluster_of_one_percent() -> None:
    x = torch.randn(6000, 4) + 30 * (torch.arange(6000) % 100 == 0)[:, None]
    strata = cluster_by_class(x, [0] * 6000, clusters_per_class=2)
    assert sorted(strata.sizes.tolist()) == [60, 5940]


def test_large_class_is_clustered_as_well_as_by_whole_k_means() -> None:
    """Where clusters overlap, the sum of squares is within 1 % of ten full restarts'."""
    x = torch.randn(6, 16)[torch.randint(6, (5000,))] + torch.randn(5000, 16)
    found = cluster_by_class(x, [0] * 5000, clusters_per_class=3)
    whole = torch.tensor(KMeans(3, n_init=10, random_state=0).fit(x.double()).labels_)
    assert inertia(x, found.cluster) <= 1.01 * inertia(x, whole)


@pytest.mark.parametrize("size", [900, 5000])
def test_clusters_do_not_depend_on_the_number_of_threads(size: int) -> None:
    x, found = torch.randn(size, 8), []
    for threads in (1, 2):
        with threadpool_limits(threads):
            found.append(cluster_by_class(x, [0] * size, seed=3).cluster)
    assert torch.equal(found[0], found[1])


@settings(max_examples=25, deadline=None)
@given(
    labels=st.lists(st.integers(0, 3), min_size=1, max_size=30),
    k=st.integers(1, 5),
    seed=st.integers(0, 100),
)
def test_every_image_has_a_cluster_of_its_class(labels: list[int], k: int, seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    x = torch.randint(3, (len(labels), 2), generator=stream).double()
    strata = cluster_by_class(x, labels, clusters_per_class=k, seed=seed)
    assert strata.label[strata.cluster].tolist() == labels
    assert (strata.sizes > 0).all()
    assert int(strata.sizes.sum()) == len(labels)
    assert all(int((strata.label == label).sum()) <= k for label in set(labels))


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("features", "labels", "k", "sentence"),
    [
        (torch.zeros(3, 2), [0, 0], 3, "3 rows of features for 2 labels"),
        (torch.zeros(0, 2), [], 3, "no images to cluster"),
        (torch.tensor([[0.0], [float("nan")]]), [0, 0], 3, "image 1 are not finite"),
    ],
)
def test_bad_features_are_named(features: Tensor, labels: list[int], k: int, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        cluster_by_class(features, labels, clusters_per_class=k)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("k", [0, 2.5, "Auto", None, True])
def test_bad_number_of_clusters_is_named(k: object) -> None:
    with pytest.raises(ConfigError, match=f"clusters_per_class={k!r} must be a whole number"):
        cluster_by_class(torch.zeros(3, 2), [0, 0, 0], clusters_per_class=k)
    with pytest.raises(ConfigError, match=f"clusters_per_class={k!r} must be a whole number"):
        Clustering(clusters_per_class=k)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize("labels", [[0.5, 1.0], ["a", "b"], [[0], [1]], [None, 1]])
def test_labels_that_are_no_whole_numbers_are_refused(labels: list[object]) -> None:
    with pytest.raises(DataError, match="y must be whole numbers, one per image"):
        cluster_by_class(torch.zeros(2, 2), labels)


@pytest.mark.usefixtures("untyped")
def test_labels_of_any_integer_type_and_features_of_any_layout_are_taken() -> None:
    x = np.random.default_rng(0).normal(size=(12, 6)).astype(np.float16)[::-1, ::2]
    expected = cluster_by_class(np.array(x), [0] * 6 + [1] * 6)
    for kind in (torch.uint8, torch.int32, torch.bool):
        found = cluster_by_class(x, torch.tensor([0] * 6 + [1] * 6).to(kind))
        assert torch.equal(found.cluster, expected.cluster)


def test_auto_keeps_clusters_of_ten_images_on_average() -> None:
    assert cluster_by_class(torch.randn(25, 40), [0] * 25, clusters_per_class="auto").count <= 2


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("cluster", "label", "sentence"),
    [
        ([], [], "no images to stratify"),
        ([0, 2], [0, 0, 0], "3 clusters were named, but the images fall into 2"),
        ([-1, 0], [0, 0], "numbered -1 to 0"),
        ([0.0, 1.0], [0, 0], "cluster must be whole numbers"),
    ],
)
def test_strata_that_make_no_sense_are_refused(
    cluster: list[float], label: list[int], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        Strata(torch.tensor(cluster, dtype=None if cluster else torch.int64), torch.tensor(label))


def test_groups_and_labels_of_different_length_are_refused() -> None:
    with pytest.raises(DataError, match="3 groups for 2 labels"):
        strata_of([0, 1, 2], [0, 0])
