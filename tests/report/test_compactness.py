"""Compactness is measured as defined, and its interval is as wide as other images would vary."""

import numpy as np
import pytest
from sklearn.metrics import silhouette_score

from cicf import DataError
from cicf.report import compactness as module
from cicf.report.compactness import compactness, resampled, scatter_ratio, silhouette


def cloud(seed: int, *, n: int = 60, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return points of three classes around three centres."""
    stream, y = np.random.default_rng(seed), np.arange(n) % 3
    centres = np.array([[0.0, 0, 0], [2, 0, 0], [0, 2, 1]])
    return centres[y] + spread * stream.normal(size=(n, 3)), y


def test_scatter_ratio_is_that_of_the_scatter_matrices() -> None:
    x, y = cloud(0, n=50)
    mean, within, between = x.mean(axis=0), np.zeros((3, 3)), np.zeros((3, 3))
    for label in range(3):
        own = x[y == label]
        within += sum(np.outer(p - own.mean(axis=0), p - own.mean(axis=0)) for p in own)
        between += len(own) * np.outer(own.mean(axis=0) - mean, own.mean(axis=0) - mean)
    assert scatter_ratio(x, y) == pytest.approx(np.trace(within) / np.trace(between))


def test_classes_that_are_points_are_as_compact_as_can_be() -> None:
    x, y = cloud(0, spread=0.0)
    assert silhouette(x, y) == 1.0
    assert scatter_ratio(x, y) == pytest.approx(0.0, abs=1e-12)


def test_measures_depend_on_neither_scale_nor_place() -> None:
    x, y = cloud(1)
    assert silhouette(1e4 * x + 1e5, y) == pytest.approx(silhouette(x, y))
    assert scatter_ratio(1e4 * x + 1e5, y) == pytest.approx(scatter_ratio(x, y))


def test_tighter_classes_are_more_compact_by_both() -> None:
    loose, y = cloud(2, spread=1.0)
    tight, _ = cloud(2, spread=0.3)
    found = compactness(resampled(tight, y), than=resampled(loose, y))
    assert found.silhouette.low is not None
    assert found.scatter_ratio.high is not None
    assert found.silhouette.low > 0
    assert found.scatter_ratio.high < 0


def test_every_image_once_is_scikit_learn_s_silhouette() -> None:
    x, y = cloud(3)
    y[0] = 7  # alone in its class
    (found,) = module._silhouettes(x, y, np.ones((1, len(y))))
    assert found == pytest.approx(silhouette_score(x, y))


def test_copies_are_weighed_and_not_compared_with_each_other() -> None:
    x, y = cloud(4, n=12)
    weights = np.array([[2.0, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1]])
    values = []
    for i in range(12):
        means = {
            c: sum(w * np.linalg.norm(x[i] - x[j]) for j, w in enumerate(weights[0]) if y[j] == c)
            / sum(w for j, w in enumerate(weights[0]) if y[j] == c and j != i)
            for c in range(3)
        }
        a = means.pop(int(y[i]))
        b = min(means.values())
        values.append(weights[0, i] * (b - a) / max(a, b))
    (found,) = module._silhouettes(x, y, weights)
    assert found == pytest.approx(sum(values) / 12)


def test_interval_is_as_wide_as_other_images_vary() -> None:
    drawn = [cloud(seed, n=90) for seed in range(40)]
    for place, measure in enumerate((silhouette, scatter_ratio)):
        deviation = np.std([measure(x, y) for x, y in drawn], ddof=1)
        intervals = [compactness(resampled(x, y))[place] for x, y in drawn[:8]]
        halves = [(high - low) / 2 / 1.96 for _, low, high in intervals]
        assert np.mean(halves) == pytest.approx(deviation, rel=0.35)


def test_network_does_not_differ_from_itself() -> None:
    found = resampled(*cloud(5))
    assert [*compactness(found, than=found).silhouette] == [0.0, 0.0, 0.0]


def test_seed_decides_the_interval_and_not_the_value() -> None:
    x, y = cloud(6)
    first, again, other = (compactness(resampled(x, y, seed=s)) for s in (0, 0, 1))
    assert first == again
    assert first.silhouette.value == other.silhouette.value
    assert first.silhouette.low != other.silhouette.low


@pytest.mark.parametrize(
    ("x", "y", "sentence"),
    [
        (np.eye(3), np.zeros(3, dtype=int), "3 images of 1 classes have no compactness"),
        (np.eye(3), np.arange(3), "more images than classes"),
        (np.ones((4, 2)), np.array([0, 1, 0, 1]), "features of all images are the same"),
        (np.full((4, 2), np.nan), np.array([0, 1, 0, 1]), "not all finite"),
    ],
)
def test_what_cannot_be_measured_is_refused(x: np.ndarray, y: np.ndarray, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        silhouette(x, y)
