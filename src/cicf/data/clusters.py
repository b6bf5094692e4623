"""k-means within each class: line 3 of Algorithm 1."""

import math
import warnings
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.core import ConfigError, DataError
from cicf.core.streams import stream_seed
from cicf.data.strata import Strata, strata_of, whole_numbers

ClustersPerClass = int | Literal["auto"]
MOST_CLUSTERS = 10
"""Where `auto` stops looking."""
FEWEST_IMAGES = 10
"""How many images a cluster must have on average for `auto` to consider it."""
RESTARTS = 10
"""Starts of k-means, of which the best is kept; with 3, inertia was up to 1.8 % higher."""
MOST_WHOLE = 4096
"""Images of a class above which it is read in mini-batches: they take half of the time there."""
SAMPLE = 2048
"""Images of a larger class among which the restarts look for centres, or 100 for each centre."""
_MINI_BATCH = 1024


def cluster_by_class(
    features: Float[Tensor, "n d"] | Float[np.ndarray, "n d"],
    y: Int[Tensor, " n"] | Int[np.ndarray, " n"] | list[int],
    *,
    clusters_per_class: ClustersPerClass = 3,
    seed: int = 0,
) -> Strata:
    """Return the K† clusters of the training set, K per class by k-means.

    A class with fewer than K different images gets as many clusters as it can fill. `auto` chooses
    K for each class by the criterion of X-means. The classes do not influence each other, and
    neither does the number of threads.
    """
    from threadpoolctl import threadpool_limits

    labels = whole_numbers(y, "y")
    rows = np.ascontiguousarray(features) if isinstance(features, np.ndarray) else features
    x = _at_least_single(torch.as_tensor(rows).detach().cpu()).numpy()
    _check(x, labels, clusters_per_class)
    groups = torch.empty_like(labels)
    # Threads add up a centre in another order, and an image between two centres would tell.
    with threadpool_limits(1):
        for label in labels.unique().tolist():
            here = labels == label
            random_state = stream_seed(seed, "clusters", label) % 2**32
            found = _groups(x[here.numpy()], clusters_per_class, random_state)
            groups[here] = torch.from_numpy(found)
    return strata_of(groups, labels)


def bic(x: Float[np.ndarray, "n d"], groups: Int[np.ndarray, " n"]) -> float:
    """Return the Bayesian information criterion of a clustering, the larger the better.

    As in X-means: one spherical Gaussian per cluster, all with the same variance, whose estimate
    is unbiased; K − 1 mixing weights, K d coordinates and the variance are the parameters.
    """
    n, d = x.shape
    sizes = np.bincount(groups)
    k = len(sizes)
    scatter = sum(_scatter(x[groups == group]) for group in range(k))
    if n <= k or scatter == 0:
        return -math.inf if k > 1 else 0.0
    variance = scatter / (d * (n - k))
    likelihood = (
        float((sizes * np.log(sizes / n)).sum())
        - n * d / 2 * math.log(2 * math.pi * variance)
        - d * (n - k) / 2
    )
    return float(likelihood - k * (d + 1) / 2 * math.log(n))


def _scatter(x: Float[np.ndarray, "n d"]) -> float:
    """Return the sum of squared distances from the mean, in double precision."""
    return float(((x - x.mean(axis=0, dtype=np.float64)) ** 2).sum())


def _at_least_single(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _groups(
    x: Float[np.ndarray, "n d"], clusters: ClustersPerClass, random_state: int
) -> Int[np.ndarray, " n"]:
    if clusters != "auto":
        return _k_means(x, clusters, random_state)
    best = _k_means(x, 1, random_state)
    highest = bic(x, best)
    for k in range(2, min(MOST_CLUSTERS, len(x) // FEWEST_IMAGES) + 1):
        candidate = _k_means(x, k, random_state)
        score = bic(x, candidate)
        if score > highest:
            best, highest = candidate, score
    return best


def _k_means(x: Float[np.ndarray, "n d"], k: int, random_state: int) -> Int[np.ndarray, " n"]:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # Fewer different images than clusters: the clusters that stay empty are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        restarts = KMeans(min(k, len(x)), n_init=RESTARTS, random_state=random_state)
        if len(x) <= MOST_WHOLE:
            labels = restarts.fit(x).labels_
        else:
            size = min(len(x), max(SAMPLE, 100 * k))
            sample = np.random.default_rng(random_state).choice(len(x), size, replace=False)
            centres = restarts.fit(x[np.sort(sample)]).cluster_centers_
            labels = _mini_batches(x, centres, random_state)
    _, groups = np.unique(labels, return_inverse=True)
    return groups


def _mini_batches(
    x: Float[np.ndarray, "n d"], centres: Float[np.ndarray, "k d"], random_state: int
) -> Int[np.ndarray, " n"]:
    """Return the cluster of each row after moving the centres by mini-batches of all rows."""
    from sklearn.cluster import MiniBatchKMeans

    model = MiniBatchKMeans(
        len(centres),
        init=centres,
        n_init=1,
        batch_size=_MINI_BATCH,
        # A small cluster is a cluster: its centre is not to be put elsewhere.
        reassignment_ratio=0,
        random_state=random_state,
    )
    labels: Int[np.ndarray, " n"] = model.fit(x).labels_
    return labels


def check_clusters_per_class(clusters_per_class: ClustersPerClass) -> None:
    """Refuse a K that is neither a whole number from 1 nor `auto`."""
    is_number = isinstance(clusters_per_class, int) and not isinstance(clusters_per_class, bool)
    if clusters_per_class != "auto" and not (is_number and clusters_per_class >= 1):
        raise ConfigError(
            f"clusters_per_class={clusters_per_class!r} must be a whole number from 1, or 'auto'"
        )


def _check(
    x: Float[np.ndarray, "n d"], y: Int[Tensor, " n"], clusters_per_class: ClustersPerClass
) -> None:
    check_clusters_per_class(clusters_per_class)
    if x.ndim != 2:
        raise DataError(f"features have shape {list(x.shape)}, but must be one row per image")
    if len(x) != len(y):
        raise DataError(f"there are {len(x)} rows of features for {len(y)} labels; pass one each")
    if len(x) == 0:
        raise DataError("there are no images to cluster; pass at least one")
    finite = np.isfinite(x).all(axis=1)
    if not finite.all():
        raise DataError(
            f"the features of image {int(finite.argmin())} are not finite numbers; check the "
            "image, or the network that the features come from"
        )
