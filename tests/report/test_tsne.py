"""Features are what enters the last layer; the plane is the same each time; groups stay apart."""

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import silhouette_score
from tests.support.scenes import CLASSES, loaded_run, masked_images

from cicf import DataError
from cicf.report import tsne_figure
from cicf.report.chosen import Role
from cicf.report.grouped import compact, heads_of
from cicf.report.tsne import embedded, features_of, labels_of, plane
from cicf.report.tsne_figure import class_colours, named_places


def test_features_are_what_enters_the_last_layer() -> None:
    data, run = masked_images(50), loaded_run()
    places = list(range(0, 100, 1))
    x = run.prepared([data[place][0] for place in places])
    expected = run.model.network[:-1](x).detach().double()
    torch.testing.assert_close(torch.from_numpy(features_of(run, data, places)), expected)


def test_embedding_is_told_of_image_by_image_and_the_same_each_time() -> None:
    data, run = masked_images(), loaded_run()
    places = [0, 13, 2, 20, 7, 9, 15, 3]
    found, again = (embedded(run, data, places) for _ in range(2))
    assert np.array_equal(found.points, again.points)
    assert found.points.shape == (8, 2)
    assert found.classes == tuple(CLASSES[place % 3] for place in places)
    assert found.domains[:3] == ("art", "sketch", "art")
    assert found.images[1] == "sketch 13"


def test_compactness_is_of_the_features_and_not_of_the_plane() -> None:
    data, run = masked_images(), loaded_run()
    found = embedded(run, data, range(24))
    y = labels_of(data, range(24))
    assert found.silhouette == pytest.approx(silhouette_score(features_of(run, data, range(24)), y))
    assert found.silhouette != pytest.approx(silhouette_score(found.points, y), abs=1e-3)


def test_classes_that_are_far_apart_are_so_in_the_plane() -> None:
    stream = np.random.default_rng(0)
    y = np.arange(60) % 2
    x = stream.normal(size=(60, 5)) + 50 * y[:, None]
    assert silhouette_score(plane(x), y) > 0.5


@pytest.mark.parametrize(
    ("features", "sentence"),
    [
        (np.eye(3), "3 images of 3 features cannot be laid out"),
        (np.arange(9.0)[:, None], "9 images of 1 features"),
        (np.ones((9, 3)), "features of all images are the same"),
    ],
)
def test_too_little_to_lay_out_is_refused(features: np.ndarray, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        plane(features)


def test_sources_and_target_are_measured_apart() -> None:
    data, places = masked_images(), list(range(24))
    features = {
        name: features_of(loaded_run(seed=seed), data, places)
        for seed, name in enumerate(("erm", "cicf"))
    }
    roles: dict[str, Role] = {"art": "source", "sketch": "target"}
    scores, differences = compact(features, data, places, roles)
    assert [(each.run, each.on, each.images) for each in scores] == [
        ("erm", "sources", 12),
        ("cicf", "sources", 12),
        ("erm", "target", 12),
        ("cicf", "target", 12),
    ]
    y = labels_of(data, places[12:])
    values = [silhouette_score(features[name][12:], y) for name in ("erm", "cicf")]
    assert scores[2].measures.silhouette.value == pytest.approx(values[0])
    assert (differences[1].run, differences[1].against) == ("cicf", "erm")
    assert differences[1].measures.silhouette.value == pytest.approx(values[1] - values[0])
    assert heads_of(scores)["erm"].splitlines()[2] == f"silhouette on target: {values[0]:.3f}"


@pytest.mark.parametrize("count", [1, 8, 9, 10, 11, 20, 21, 65, 126])
def test_no_two_classes_have_one_colour(count: int) -> None:
    assert len(set(class_colours([str(k) for k in range(count)]).values())) == count


@given(st.integers(0, 100))
def test_names_of_classes_do_not_overlap(seed: int) -> None:
    stream = np.random.default_rng(seed)
    classes = [f"class number {k}" for k in stream.integers(40, size=200)]
    points = stream.normal(size=(200, 2))
    places = named_places(points, classes)
    side = np.ptp(points, axis=0).max()
    wide, high = tsne_figure._LETTER
    boxes = [
        (x - wide * side * len(name) / 2, x + wide * side * len(name) / 2, y, y + high * side)
        for name, (x, y) in places.items()
    ]
    assert len(boxes) > 1
    for one, other in combinations(boxes, 2):
        across = min(one[1], other[1]) - max(one[0], other[0])
        along = min(one[3], other[3]) - max(one[2], other[2])
        assert min(across, along) <= 1e-9


def test_most_numerous_class_is_named() -> None:
    points = np.concatenate([np.zeros((5, 2)), np.full((9, 2), 1e-3), np.full((2, 2), 50.0)])
    classes = ["few"] * 5 + ["many"] * 9 + ["far"] * 2
    assert set(named_places(points, classes)) == {"many", "far"}
