"""From an image to what a network takes: size, augmentation, normalisation."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from cicf.core.streams import generator, stream_seed
from cicf.core.torchvision_cpu import torchvision

Augment = Literal["none", "basic", "autoaugment"]
"""`basic`: a flip and a translation, each in half of the images. `autoaugment`: these, then one
sub-policy of torchvision's AutoAugment."""
Policy = Literal["imagenet", "svhn"]
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
ENLARGED = 1.125
"""A translation is a random crop of an image enlarged by this factor, as in Dassl."""


@dataclass(frozen=True, slots=True)
class Transform:
    """Turns an image of any size into a square one; in training by the draws of a seed alone."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    augment: Augment = "basic"
    flips: bool = True
    policy: Policy = "imagenet"

    def training(self, image: UInt8[Tensor, "3 h w"], seed: int) -> Float[Tensor, "3 s s"]:
        """Return an augmented image, the same for the same seed, in any process."""
        stream = generator(seed, "augment")
        if self.augment == "none":
            return self._normalised(_resized(image, self.size))
        if float(torch.rand((), generator=stream)) < 0.5:
            image = _resized(image, self.size)
        else:
            large = round(self.size * ENLARGED)
            top, left = torch.randint(large - self.size + 1, (2,), generator=stream).tolist()
            image = _resized(image, large)[:, top : top + self.size, left : left + self.size]
        if self.flips and float(torch.rand((), generator=stream)) < 0.5:
            image = image.flip(2)
        if self.augment == "autoaugment":
            # torchvision draws from the global state, which is lent to it for the time of the call.
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(stream_seed(seed, "autoaugment"))
                v2 = torchvision("transforms.v2")
                image = v2.AutoAugment(v2.AutoAugmentPolicy(self.policy))(image)
        return self._normalised(image)

    def evaluation(self, image: UInt8[Tensor, "3 h w"]) -> Float[Tensor, "3 s s"]:
        """Return the centre of the image as the network takes it."""
        return self._normalised(self.centre(image))

    def centre(self, image: UInt8[Tensor, "3 h w"]) -> UInt8[Tensor, "3 s s"]:
        """Return the centre of the image, its short side scaled to the size."""
        height, width = image.shape[1:]
        scale = self.size / min(height, width)
        sides = max(self.size, round(height * scale)), max(self.size, round(width * scale))
        image = _resized(image, *sides)
        top, left = (sides[0] - self.size) // 2, (sides[1] - self.size) // 2
        return image[:, top : top + self.size, left : left + self.size]

    def _normalised(self, image: UInt8[Tensor, "3 s s"]) -> Float[Tensor, "3 s s"]:
        mean, std = torch.tensor(self.mean)[:, None, None], torch.tensor(self.std)[:, None, None]
        return (image / 255 - mean) / std


def _resized(
    image: UInt8[Tensor, "3 h w"], height: int, width: int | None = None
) -> UInt8[Tensor, "3 r s"]:
    shape = height, width or height
    if image.shape[1:] == shape:
        return image
    found = F.interpolate(
        image[None].float(), shape, mode="bilinear", antialias=True, align_corners=False
    )
    return found[0].round().clamp(0, 255).to(torch.uint8)
