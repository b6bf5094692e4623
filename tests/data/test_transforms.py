"""From an image to what a network takes."""

import pytest
import torch
import torch.nn.functional as F

from cicf.data.transforms import HALF, IMAGENET, Transform


def picture(height: int = 40, width: int = 32) -> torch.Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(256, (3, height, width), generator=stream, dtype=torch.uint8)


@pytest.mark.parametrize("augment", ["none", "basic", "autoaugment"])
@pytest.mark.parametrize("policy", ["imagenet", "svhn"])
def test_an_image_is_augmented_by_its_seed_alone(augment: str, policy: str) -> None:
    transform = Transform(16, *IMAGENET, augment=augment, policy=policy)
    first = [transform.training(picture(), seed) for seed in range(20)]
    before = torch.get_rng_state()
    torch.rand(5)
    second = [transform.training(picture(), seed) for seed in range(20)]
    torch.set_rng_state(before)
    transform.training(picture(), 3)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert torch.equal(before, torch.get_rng_state())
    different = len({tuple(x.flatten().tolist()) for x in first})
    assert different == 1 if augment == "none" else different > 5
    assert all(x.shape == (3, 16, 16) and x.isfinite().all() for x in first)


def test_basic_augmentation_is_flip_and_translation_in_half_of_the_images() -> None:
    transform = Transform(16, *HALF, augment="basic")
    image = picture(16, 16)
    plain = transform.evaluation(image)
    drawn = [transform.training(image, seed) for seed in range(400)]
    kept = sum(torch.equal(x, plain) for x in drawn)
    flipped = sum(torch.equal(x, plain.flip(2)) for x in drawn)
    assert kept == pytest.approx(100, abs=40)
    assert flipped == pytest.approx(100, abs=40)


def test_translation_is_a_crop_of_the_enlarged_image() -> None:
    transform = Transform(16, *HALF, augment="basic", flips=False)
    image = picture(16, 16)
    large = F.interpolate(
        image[None].float(), (18, 18), mode="bilinear", antialias=True, align_corners=False
    )[0].round()
    crops = [
        (large[:, t : t + 16, x : x + 16] / 255 - 0.5) / 0.5 for t in range(3) for x in range(3)
    ]
    plain = transform.evaluation(image)
    for seed in range(30):
        found = transform.training(image, seed)
        assert any(torch.allclose(found, each) for each in (plain, *crops))


def test_digits_are_never_flipped_when_told_so() -> None:
    transform = Transform(16, *HALF, augment="basic", flips=False)
    image = picture(16, 16)
    flipped = transform.evaluation(image).flip(2)
    assert not any(torch.equal(transform.training(image, seed), flipped) for seed in range(100))


def test_evaluation_takes_the_centre_at_the_short_side() -> None:
    transform = Transform(16, *HALF)
    image = picture(16, 40)
    expected = (image[:, :, 12:28] / 255 - 0.5) / 0.5
    torch.testing.assert_close(transform.evaluation(image), expected)
    assert transform.evaluation(picture(41, 33)).shape == (3, 16, 16)


def test_normalisation_is_that_of_its_mean_and_deviation() -> None:
    white = torch.full((3, 8, 8), 255, dtype=torch.uint8)
    found = Transform(8, *IMAGENET).evaluation(white)[:, 0, 0]
    expected = [(1 - m) / s for m, s in zip(*IMAGENET, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected))
