"""Maps of several runs on images of a data set are those of each image alone."""

from pathlib import Path

import pytest
import torch
from tests.support.runs import folder_of_images
from tests.support.scenes import CLASSES, loaded_run, masked_images

from cicf import ConfigError, DataError
from cicf.report.cams import cam_rows, looks
from cicf.report.chosen import files_as_data
from cicf.report.gradcam import grad_cam, overlay


def test_views_are_for_the_true_class_as_each_run_numbers_it() -> None:
    data = masked_images()
    runs = {"a": loaded_run(), "b": loaded_run(seed=1, classes=("owl", "cat", "dog"))}
    for place, row in zip([4, 17], cam_rows(runs, data, [4, 17]), strict=True):
        image, y, domain = data[place]
        assert (row.class_, row.domain) == (CLASSES[y], data.domains[domain])
        assert torch.equal(row.image, image)
        for run, view in zip(runs.values(), row.views, strict=True):
            own = run.setup.classes.index(CLASSES[y])
            x = run.prepared([image])
            (cam,) = grad_cam(run.model.network, x, torch.tensor([own]))
            torch.testing.assert_close(view.cam, cam)
            sure = run.probabilities([image])[0]
            assert view.predicted == run.setup.classes[int(sure.argmax())]
            assert view.probability == pytest.approx(float(sure[own]))
            torch.testing.assert_close(view.overlay, overlay(image, cam), atol=1, rtol=0)


@pytest.mark.parametrize("class_", ["predicted", "owl"])
def test_probability_is_that_of_the_class_that_is_shown(class_: str) -> None:
    data, run = masked_images(), loaded_run()
    for place, row in zip([0, 13], cam_rows({"a": run}, data, [0, 13], class_=class_), strict=True):
        sure = run.probabilities([data[place][0]])[0]
        expected = sure.max() if class_ == "predicted" else sure[CLASSES.index("owl")]
        assert row.views[0].probability == pytest.approx(float(expected))


def test_batches_come_one_after_the_other_and_leave_nothing_out() -> None:
    data, run = masked_images(100), loaded_run()
    places = list(range(0, 200, 1))[::-1]
    batches = list(looks(run, data, places))
    assert [place for some, _ in batches for place in some] == places
    assert len(batches) > 1
    some, found = batches[-1]
    (alone,) = [look for _, look in looks(run, data, some[-1:])]
    torch.testing.assert_close(found.cams[-1:], alone.cams)


def test_no_images_give_no_rows() -> None:
    assert cam_rows({"a": loaded_run()}, masked_images(), []) == []


def test_class_that_is_not_known_is_asked_for(tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path, (), ("unknown",), 1)
    data = files_as_data([folder / "unknown" / "00.png"], CLASSES)
    with pytest.raises(ConfigError, match=r"true class of .*unknown/00.png is not known; name it"):
        cam_rows({"a": loaded_run()}, data, [0])
    (row,) = cam_rows({"a": loaded_run()}, data, [0], class_="predicted")
    assert row.class_ == ""


def test_class_that_no_run_knows_is_refused() -> None:
    with pytest.raises(DataError, match="class 'cat' is none that the network knows"):
        cam_rows({"a": loaded_run(classes=("dog", "owl", "cow"))}, masked_images(), [0])
