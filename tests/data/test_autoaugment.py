"""AutoAugment on batches is torchvision's, operation by operation."""

import pytest
import torch

from cicf.core.torchvision_cpu import torchvision
from cicf.data.autoaugment import BINS, POLICIES, applied, autoaugment, magnitude


def images(count: int, size: int = 16) -> torch.Tensor:
    return torch.randint(256, (count, 3, size, size), dtype=torch.uint8)


@pytest.mark.parametrize("policy", ["imagenet", "svhn"])
def test_operations_are_those_of_torchvision(policy: str) -> None:
    v2 = torchvision("transforms.v2")
    theirs = v2.AutoAugment(v2.AutoAugmentPolicy(policy))
    assert [tuple(map(tuple, each)) for each in POLICIES[policy]] == theirs._policies
    batch = images(3)
    for operation in {each for halves in POLICIES[policy] for each in halves}:
        levels, is_signed = theirs._AUGMENTATION_SPACE[operation.name]
        strengths = levels(BINS, 16, 16)
        strength = 0.0 if strengths is None else float(strengths[operation.level])
        assert magnitude(operation, 16) == strength
        for sign in (1, -1) if is_signed else (1,):
            expected = theirs._apply_image_or_video_transform(
                batch, operation.name, sign * strength, theirs.interpolation, theirs._fill
            )
            assert torch.equal(applied(batch, operation.name, sign * strength), expected)
            alone = [applied(image[None], operation.name, sign * strength) for image in batch]
            assert torch.equal(torch.cat(alone), expected)


def test_sub_policies_and_signs_are_drawn_as_often_as_they_should_be() -> None:
    grey = images(1).expand(4000, -1, -1, -1)
    found = autoaugment(grey, "svhn", torch.Generator().manual_seed(0))
    shorn = {
        sign * strength: applied(grey[:1], "ShearX", sign * strength)
        for sign in (1, -1)
        for strength in [magnitude(POLICIES["svhn"][0][0], 16)]
    }
    # Sub-policies 1, 6 and 11 begin with this shear; the second half leaves it alone at times.
    share = (0.9 * 0.8 + 0.9 * 0.2 + 0.9 * 0.7) / 25 / 2
    for image in shorn.values():
        count = sum(torch.equal(each, image[0]) for each in found)
        assert count == pytest.approx(4000 * share, abs=4 * (4000 * share) ** 0.5)


def test_the_batch_that_was_given_is_left_alone() -> None:
    batch = images(40)
    before = batch.clone()
    autoaugment(batch, "imagenet", torch.Generator().manual_seed(0))
    assert torch.equal(batch, before)
