"""Interventions: they do what they say, more at each strength, and spare the object."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from cicf.report.interventions import Intervention, interventions

BY_NAME = {each.name: each for each in interventions()}
EVERY = pytest.mark.parametrize("each", BY_NAME.values(), ids=BY_NAME)


def picture(height: int = 32, width: int = 48) -> tuple[Tensor, Tensor]:
    """Return a bright noisy square before a reddish noisy ground, and its mask."""
    stream = torch.Generator().manual_seed(0)
    image = torch.randint(60, (3, height, width), generator=stream, dtype=torch.uint8)
    image[0] += 90
    mask = torch.zeros(height, width, dtype=torch.bool)
    mask[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3] = True
    image[:, mask] += 70
    return image, mask


def distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().mean())


@EVERY
def test_each_strength_changes_more_than_the_one_before(each: Intervention) -> None:
    image, mask = picture()
    found = [each.apply(image, level, mask) for level in each.levels]
    assert all(one.dtype == torch.uint8 and one.shape == image.shape for one in found)
    amounts = [0.0, *(distance(image, one) for one in found)]
    assert amounts == sorted(amounts)
    assert len(set(amounts)) == 4


@EVERY
def test_the_image_itself_is_left_as_it_was(each: Intervention) -> None:
    image, mask = picture()
    before = image.clone()
    first, second = (each.apply(image, each.levels[2], mask) for _ in range(2))
    assert torch.equal(image, before)
    assert torch.equal(first, second)


@EVERY
@pytest.mark.parametrize("size", [(1, 1), (2, 5), (7, 3)])
def test_small_images_are_taken(each: Intervention, size: tuple[int, int]) -> None:
    image = torch.full((3, *size), 100, dtype=torch.uint8)
    mask = torch.zeros(size, dtype=torch.bool)
    mask[0, 0] = True
    for level in each.levels:
        assert each.apply(image, level, mask).shape == image.shape


@pytest.mark.parametrize("name", ["border", "background"])
def test_a_known_object_is_untouched(name: str) -> None:
    image, mask = picture()
    mask[0, :4] = True
    found = BY_NAME[name].apply(image, BY_NAME[name].levels[-1], mask)
    assert torch.equal(found[:, mask], image[:, mask])
    assert not torch.equal(found, image)


def test_border_is_a_frame_of_its_width_in_one_colour() -> None:
    image, _ = picture(32, 50)
    found = BY_NAME["border"].apply(image, 0.12, None)
    inside = (slice(None), slice(4, -4), slice(4, -4))
    assert torch.equal(found[inside], image[inside])
    assert len(found[:, :4].flatten(1).unique(dim=1).T) == 1


def test_whole_background_is_of_one_colour_far_from_its_own() -> None:
    image, mask = picture()
    image[:, ~mask] = torch.tensor([[200], [10], [127]], dtype=torch.uint8)
    found = BY_NAME["background"].apply(image, 1.0, mask)
    assert found[:, ~mask].unique(dim=1).tolist() == [[0], [255], [255]]


def test_grey_in_full_has_three_equal_colours() -> None:
    image, _ = picture()
    found = BY_NAME["grey"].apply(image, 1.0, None)
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[1], found[2])


def test_casts_push_red_against_blue() -> None:
    image = torch.full((3, 2, 2), 100, dtype=torch.uint8)
    assert BY_NAME["warm cast"].apply(image, 0.25, None)[:, 0, 0].tolist() == [125, 100, 75]
    assert BY_NAME["cool cast"].apply(image, 0.25, None)[:, 0, 0].tolist() == [75, 100, 125]


@given(st.integers(0, 255), st.sampled_from([0.4, 1.5, 2.0]))
def test_brightness_is_a_factor_up_to_white(value: int, factor: float) -> None:
    image = torch.full((3, 2, 2), value, dtype=torch.uint8)
    found = BY_NAME["darker"].apply(image, factor, None)
    assert abs(int(found[0, 0, 0]) - min(255, value * factor)) <= 1


def test_blur_keeps_a_plain_image_and_takes_its_width_from_the_side() -> None:
    plain = torch.full((3, 40, 40), 77, dtype=torch.uint8)
    assert torch.equal(BY_NAME["blur"].apply(plain, 0.06, None), plain)
    edge = torch.zeros(3, 40, 40, dtype=torch.uint8)
    edge[:, :, 20:] = 255
    large = edge.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    reach = [
        int(((found > 5) & (found < 250))[0, 0].sum())
        for found in (BY_NAME["blur"].apply(each, 0.06, None) for each in (edge, large))
    ]
    assert reach[1] == pytest.approx(2 * reach[0], abs=2)
