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


def cluster_by_class(
    features: Float[Tensor, "n d"] | Float[np.ndarray, "n d"],
    y: Int[Tensor, " n"] | Int[np.ndarray, " n"] | list[int],
    *,
    clusters_per_class: ClustersPerClass = 3,
    seed: int = 0,
) -> Strata:
    """Return the K† clusters of the training set, K per class by k-means.

    A class with fewer than K different images gets as many clusters as it can fill. `auto` chooses
    K for each class by the criterion of X-means. The classes do not influence each other.
    """
    labels = whole_numbers(y, "y")
    rows = np.ascontiguousarray(features) if isinstance(features, np.ndarray) else features
    x = torch.as_tensor(rows).detach().cpu().double().numpy()
    _check(x, labels, clusters_per_class)
    groups = torch.empty_like(labels)
    for label in labels.unique().tolist():
        here = labels == label
        random_state = stream_seed(seed, "clusters", label) % 2**32
        groups[here] = torch.from_numpy(_groups(x[here.numpy()], clusters_per_class, random_state))
    return strata_of(groups, labels)


def bic(x: Float[np.ndarray, "n d"], groups: Int[np.ndarray, " n"]) -> float:
    """Return the Bayesian information criterion of a clustering, the larger the better.

    As in X-means: one spherical Gaussian per cluster, all with the same variance, whose estimate
    is unbiased; K − 1 mixing weights, K d coordinates and the variance are the parameters.
    """
    n, d = x.shape
    sizes = np.bincount(groups)
    k = len(sizes)
    means = np.stack([x[groups == group].mean(axis=0) for group in range(k)])
    scatter = float(((x - means[groups]) ** 2).sum())
    if n <= k or scatter == 0:
        return -math.inf if k > 1 else 0.0
    variance = scatter / (d * (n - k))
    likelihood = (
        float((sizes * np.log(sizes / n)).sum())
        - n * d / 2 * math.log(2 * math.pi * variance)
        - d * (n - k) / 2
    )
    return float(likelihood - k * (d + 1) / 2 * math.log(n))


def _groups(
    x: Float[np.ndarray, "n d"], clusters: ClustersPerClass, random_state: int
) -> Int[np.ndarray, " n"]:
    if clusters != "auto":
        return _k_means(x, clusters, random_state)
    best = _k_means(x, 1, random_state)
    for k in range(2, min(MOST_CLUSTERS, len(x) // FEWEST_IMAGES) + 1):
        candidate = _k_means(x, k, random_state)
        if bic(x, candidate) > bic(x, best):
            best = candidate
    return best


def _k_means(x: Float[np.ndarray, "n d"], k: int, random_state: int) -> Int[np.ndarray, " n"]:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # Fewer different images than clusters: the clusters that stay empty are dropped below.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = KMeans(min(k, len(x)), n_init=10, random_state=random_state).fit(x)
    _, groups = np.unique(model.labels_, return_inverse=True)
    return groups


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
