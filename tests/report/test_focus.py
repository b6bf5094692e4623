"""Whether maps lie on the object: limit cases, masks that move with the image, and what is told."""

import math
from dataclasses import replace

import pytest
import torch
from tests.support.scenes import loaded_run, masked_images

from cicf.report.cams import cam_rows
from cicf.report.focus import (
    Glance,
    energy_inside,
    focus,
    focus_differences,
    glances,
    masks_as_seen,
    pointing_hits,
)


def square() -> torch.Tensor:
    """Return a mask of 6 of 24 pixels."""
    mask = torch.zeros(1, 4, 6, dtype=torch.bool)
    mask[0, 1:3, 1:4] = True
    return mask


def test_uniform_map_gets_the_area_of_the_mask() -> None:
    cams = torch.full((1, 4, 6), 0.7)
    assert energy_inside(cams, square()).item() == pytest.approx(6 / 24)
    assert pointing_hits(cams, square()).item() == pytest.approx(6 / 24)


@pytest.mark.parametrize("is_inside", [True, False])
def test_map_on_one_side_of_the_border_gets_all_or_nothing(is_inside: bool) -> None:
    mask = square()
    cams = (mask == is_inside).float() * torch.rand(1, 4, 6)
    assert energy_inside(cams, mask).item() == pytest.approx(float(is_inside))
    assert pointing_hits(cams, mask).item() == float(is_inside)


def test_energy_and_peak_can_disagree() -> None:
    cams = square().float() * 0.5
    cams[0, 0, 0] = 1.0
    assert energy_inside(cams, square()).item() == pytest.approx(3 / 4)
    assert pointing_hits(cams, square()).item() == 0.0


def test_zero_map_has_no_share_and_no_peak() -> None:
    cams = torch.zeros(1, 4, 6)
    assert math.isnan(energy_inside(cams, square()).item())
    assert math.isnan(pointing_hits(cams, square()).item())


def test_neither_measure_depends_on_the_height_of_the_map() -> None:
    cams, mask = torch.rand(1, 4, 6), square()
    for measure in (energy_inside, pointing_hits):
        torch.testing.assert_close(measure(1000 * cams, mask), measure(cams, mask))


@pytest.mark.parametrize(("height", "width", "size"), [(16, 40, 16), (40, 16, 10), (16, 16, 48)])
def test_mask_is_scaled_and_cut_as_its_image(height: int, width: int, size: int) -> None:
    data, run = masked_images(4, height=height, width=width), loaded_run(size=size)
    assert data.masks is not None
    data.images[:] = data.masks[:, None].to(torch.uint8) * 255
    seen = data.view(run.transform.evaluated_view, torch.arange(8))
    found = masks_as_seen(run, data, range(8))
    assert found is not None
    assert torch.equal(found, seen[:, 0] > 127)


def test_glances_measure_the_maps_that_are_drawn() -> None:
    data, run = masked_images(), loaded_run()
    places = [3, 20, 5]
    (seen,) = glances(run, data, places)
    assert data.masks is not None
    for glance, row in zip(seen, cam_rows({"erm": run}, data, places), strict=True):
        (view,) = row.views
        mask = data.masks[glance.place]
        assert glance.predicted == view.predicted
        assert glance.probability == pytest.approx(view.probability)
        assert glance.area == pytest.approx(mask.float().mean().item())
        expected = (view.cam[mask].sum() / view.cam.sum()).item()
        assert glance.energy == pytest.approx(expected, nan_ok=True)
    assert [glance.place for glance in seen] == places


def test_without_masks_nothing_is_measured() -> None:
    data = replace(masked_images(), masks=None)
    (seen,) = glances(loaded_run(), data, [0, 1])
    assert {(glance.energy, glance.hit, glance.area) for glance in seen} == {(None, None, None)}


def glance(energy: float, hit: float, area: float = 0.25) -> Glance:
    return Glance(0, "cat", 0.5, energy, hit, area)


NO_MAP = glance(math.nan, math.nan)


def test_zero_maps_are_left_out_and_counted() -> None:
    found = focus("erm", "art", [glance(0.2, 1.0), glance(0.4, 0.0, 0.35), NO_MAP])
    assert (found.images, found.zero_maps) == (3, 1)
    assert found.area == pytest.approx((0.25 + 0.35 + 0.25) / 3)
    assert found.energy.value == pytest.approx(0.3)
    assert found.pointing.value == 0.5


def test_run_of_zero_maps_alone_has_no_value() -> None:
    found = focus("erm", "art", [NO_MAP, NO_MAP])
    assert (found.zero_maps, found.energy.value, found.pointing.value) == (2, None, None)


def test_differences_are_of_the_same_images() -> None:
    base = [glance(0.1, 0.0), glance(0.9, 1.0), NO_MAP, glance(0.5, 1.0)]
    other = [glance(0.2, 1.0), glance(1.0, 1.0), glance(0.3, 1.0), NO_MAP]
    (found,) = focus_differences({"erm": base, "cicf": other}, "art")
    assert (found.run, found.against) == ("cicf", "erm")
    # The images differ far more than the runs do; paired, the interval knows nothing of it.
    assert found.energy == pytest.approx((0.1, 0.1, 0.1))
    assert found.pointing.value == 0.5
