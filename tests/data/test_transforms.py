"""From an image to what a network takes."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from cicf.data.domains import DomainDataset
from cicf.data.transforms import HALF, IMAGENET, Transform
from cicf.data.views import View


def picture(height: int = 40, width: int = 32) -> torch.Tensor:
    stream = torch.Generator().manual_seed(0)
    return torch.randint(256, (3, height, width), generator=stream, dtype=torch.uint8)


def copies(image: Tensor, count: int) -> DomainDataset:
    zeros = torch.zeros(count, dtype=torch.int64)
    return DomainDataset(image.expand(count, -1, -1, -1), zeros, zeros, ("a",), ("all",))


def drawn(transform: Transform, image: Tensor, count: int, *, seed: int = 0) -> Tensor:
    """Return the image augmented in many positions of a batch."""
    return transform.training(copies(image, count), torch.arange(count), seed=seed)


@pytest.mark.parametrize("augment", ["none", "basic", "autoaugment"])
@pytest.mark.parametrize("policy", ["imagenet", "svhn"])
def test_a_batch_is_augmented_by_its_seed_alone(augment: str, policy: str) -> None:
    transform = Transform(16, *IMAGENET, augment=augment, policy=policy)
    before = torch.get_rng_state()
    first = drawn(transform, picture(), 40)
    assert torch.equal(before, torch.get_rng_state())
    torch.rand(5)
    assert torch.equal(first, drawn(transform, picture(), 40))
    different = len({tuple(x.flatten().tolist()) for x in first})
    assert different == 1 if augment == "none" else different > 5
    assert first.shape == (40, 3, 16, 16)
    assert first.isfinite().all()
    if augment != "none":
        assert not torch.equal(first, drawn(transform, picture(), 40, seed=1))


def test_basic_augmentation_is_flip_and_translation_in_half_of_the_images() -> None:
    transform = Transform(16, *HALF, augment="basic")
    image = picture(16, 16)
    plain = transform.prepared(image)
    found = drawn(transform, image, 400)
    kept = sum(torch.equal(x, plain) for x in found)
    flipped = sum(torch.equal(x, plain.flip(2)) for x in found)
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
    seen = set()
    for found in drawn(transform, image, 200):
        (which,) = [
            number
            for number, each in enumerate((transform.prepared(image), *crops))
            if torch.allclose(found, each, atol=1e-6)
        ]
        seen.add(which)
    assert seen == set(range(10))


def test_digits_are_never_flipped_when_told_so() -> None:
    transform = Transform(16, *HALF, augment="basic", flips=False)
    image = picture(16, 16)
    flipped = transform.prepared(image).flip(2)
    assert not any(torch.equal(x, flipped) for x in drawn(transform, image, 100))


def test_evaluation_takes_the_centre_at_the_short_side() -> None:
    transform = Transform(16, *HALF)
    image = picture(16, 40)
    expected = (image[:, :, 12:28] / 255 - 0.5) / 0.5
    torch.testing.assert_close(transform.prepared(image), expected)
    assert transform.prepared(picture(41, 33)).shape == (3, 16, 16)


@pytest.mark.parametrize("shape", [(16, 16), (23, 17), (40, 32), (9, 31)])
@pytest.mark.parametrize("kind", ["squeezed", "centre"])
def test_an_image_of_a_batch_is_what_it_would_be_alone(shape: tuple[int, int], kind: str) -> None:
    images = torch.randint(256, (9, 3, *shape), dtype=torch.uint8)
    view = View(kind, 16)
    alone = torch.cat([view.of(image[None]) for image in images])
    assert torch.equal(view.of(images), alone)
    transform = Transform(16, *IMAGENET)
    zeros = torch.zeros(9, dtype=torch.int64)
    data = DomainDataset(images, zeros, zeros, ("a",), ("all",))
    together = transform.evaluation(data, torch.arange(9))
    assert torch.equal(together, torch.stack([transform.prepared(image) for image in images]))


def test_a_square_image_is_squeezed_to_its_centre() -> None:
    image = picture(37, 37)[None]
    assert torch.equal(View("squeezed", 16).of(image), View("centre", 16).of(image))


def test_normalisation_is_that_of_its_mean_and_deviation() -> None:
    white = torch.full((3, 8, 8), 255, dtype=torch.uint8)
    found = Transform(8, *IMAGENET).prepared(white)[:, 0, 0]
    expected = [(1 - m) / s for m, s in zip(*IMAGENET, strict=True)]
    torch.testing.assert_close(found, torch.tensor(expected))
