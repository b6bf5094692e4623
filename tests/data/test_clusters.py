"""k-means within each class."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf import Clustering, ConfigError, DataError, Strata, cluster_by_class
from cicf.data import bic, strata_of


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
