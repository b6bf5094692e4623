"""How tightly features of one class lie together, measured where they are and not in a picture."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial.distance import cdist
from sklearn.metrics import silhouette_score

from cicf.core import DataError
from cicf.core.streams import stream_seed
from cicf.report.estimates import Estimate, bootstrapped

RESAMPLED = 500
"""How often the images are drawn anew for an interval."""


class Resampled(NamedTuple):
    """Holds silhouette and scatter ratio of a network, and both for every sample of images."""

    values: Float[np.ndarray, " 2"]
    samples: Float[np.ndarray, "2 b"]


class Compactness(NamedTuple):
    """Holds the two measures of one network on the same images."""

    silhouette: Estimate
    scatter_ratio: Estimate


def silhouette(features: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"]) -> float:
    """Return the mean silhouette by class, from −1 to 1: the higher, the more compact.

    Of an image it is (b − a) / max(a, b), a its mean distance to the others of its class, b that to
    the nearest other class (Rousseeuw, 1987).
    """
    _check(features, y)
    return float(silhouette_score(features, y))


def scatter_ratio(features: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"]) -> float:
    """Return the scatter within classes over that between them: the lower, the more compact.

    tr S_W / tr S_B, with S_W the squared distances to the mean of the class, and S_B those from
    the classes' means to the mean of all, each counted as often as the class has images.
    """
    _check(features, y)
    return float(_scatter_ratios(features, y, np.ones((1, len(y))))[0])


def resampled(
    features: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"], *, seed: int = 0
) -> Resampled:
    """Return both measures on the images, and on samples of them, which depend on y and seed."""
    _check(features, y)
    weights = _samples(y, seed)
    return Resampled(
        np.array([silhouette(features, y), scatter_ratio(features, y)]),
        np.stack([_silhouettes(features, y, weights), _scatter_ratios(features, y, weights)]),
    )


def compactness(found: Resampled, *, than: Resampled | None = None) -> Compactness:
    """Return both measures with intervals, or by how much they exceed those of another network.

    The other has to have seen the same images, with the same seed. The intervals are of standard
    errors and not of percentiles, which would lie beside the value: an image that is drawn twice
    makes its class look tighter than it is.
    """
    values, samples = found
    if than is not None:
        values, samples = values - than.values, samples - than.samples
    silhouettes, ratios = (
        bootstrapped(float(value), sample) for value, sample in zip(values, samples, strict=True)
    )
    return Compactness(silhouettes, ratios)


def _samples(y: Int[np.ndarray, " n"], seed: int) -> Float[np.ndarray, "b n"]:
    """Return how often each image is in each of the samples, which are drawn within classes."""
    stream = np.random.default_rng(stream_seed(seed, "compactness"))
    weights = np.empty((RESAMPLED, len(y)))
    for label in np.unique(y):
        here = np.flatnonzero(y == label)
        weights[:, here] = stream.multinomial(
            len(here), np.full(len(here), 1 / len(here)), size=RESAMPLED
        )
    return weights


def _silhouettes(
    features: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"], weights: Float[np.ndarray, "b n"]
) -> Float[np.ndarray, " b"]:
    """Return the silhouette of each sample; an image is not compared with its own copies."""
    distances = cdist(features, features)
    labels, own = np.unique(y, return_inverse=True)
    members = (own[:, None] == np.arange(len(labels))).astype(float)
    rows = np.arange(len(y))
    found = np.empty(len(weights))
    for sample, weight in enumerate(weights):
        sums = distances @ (weight[:, None] * members)
        others = (weight @ members)[own] - weight
        # Without another of its class, an image's silhouette is 0, as in scikit-learn.
        a = sums[rows, own] / np.where(others > 0, others, 1)
        means = sums / (weight @ members)
        means[rows, own] = np.inf
        b = means.min(axis=1)
        larger = np.maximum(a, b)
        values = np.where((others > 0) & (larger > 0), (b - a) / np.where(larger > 0, larger, 1), 0)
        found[sample] = values @ weight / weight.sum()
    return found


def _scatter_ratios(
    features: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"], weights: Float[np.ndarray, "b n"]
) -> Float[np.ndarray, " b"]:
    labels, own = np.unique(y, return_inverse=True)
    members = (own[:, None] == np.arange(len(labels))).astype(float)
    # Before squares are taken, or their difference would drown in rounding.
    centred = features - features.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    found = np.empty(len(weights))
    for sample, weight in enumerate(weights):
        counts = weight @ members
        means = (weight[:, None] * members).T @ centred / counts[:, None]
        total = weight @ squares
        by_class = counts @ (means**2).sum(axis=1)
        centre = counts @ means / counts.sum()
        found[sample] = (total - by_class) / (by_class - counts.sum() * (centre**2).sum())
    return found


def _check(features: Float[np.ndarray, "n d"], y: Int[np.ndarray, " n"]) -> None:
    num_classes = len(np.unique(y))
    if not 2 <= num_classes < len(y):
        raise DataError(
            f"{len(y)} images of {num_classes} classes have no compactness; take images of two "
            "classes or more, and more images than classes"
        )
    if not np.isfinite(features).all():
        raise DataError("the features are not all finite; train the network again")
    if np.ptp(features, axis=0).max() == 0:
        raise DataError("the features of all images are the same; train the network again")
