"""From images to what a network takes: size, augmentation, normalisation, for whole batches."""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from cicf.core.streams import generator
from cicf.data.autoaugment import Policy, autoaugment
from cicf.data.domains import DomainDataset
from cicf.data.views import View

Augment = Literal["none", "basic", "autoaugment"]
"""`basic`: a flip and a translation, each in half of the images. `autoaugment`: these, then one
sub-policy of torchvision's AutoAugment."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
HALF = (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)
ENLARGED = 1.125
"""A translation is a random crop of an image enlarged by this factor, as in Dassl."""


@dataclass(frozen=True, slots=True)
class Transform:
    """Turns images of any size into square ones; in training by the draws of a seed alone."""

    size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    augment: Augment = "basic"
    flips: bool = True
    policy: Policy = "imagenet"

    @property
    def trained_views(self) -> tuple[View, ...]:
        """Return the squares that a batch to train on is made of."""
        squeezed = View("squeezed", self.size)
        if self.augment == "none":
            return (squeezed,)
        return squeezed, View("squeezed", round(self.size * ENLARGED))

    @property
    def evaluated_view(self) -> View:
        """Return the square that a network is evaluated on."""
        return View("centre", self.size)

    def training(
        self, data: DomainDataset, places: Int[Tensor, " m"], *, seed: int
    ) -> Float[Tensor, "m 3 s s"]:
        """Return the images at these places, augmented by their positions and the seed alone."""
        if self.augment == "none":
            return self._normalised(data.view(self.trained_views[0], places))
        stream = generator(seed, "augment")
        images = self._translated(data, places, stream)
        if self.flips:
            is_flipped = torch.rand(len(places), generator=stream) < 0.5
            images[is_flipped] = images[is_flipped].flip(3)
        if self.augment == "autoaugment":
            images = autoaugment(images, self.policy, generator(seed, "autoaugment"))
        return self._normalised(images)

    def evaluation(
        self, data: DomainDataset, places: Int[Tensor, " m"]
    ) -> Float[Tensor, "m 3 s s"]:
        """Return the centres of the images at these places as the network takes them."""
        return self._normalised(data.view(self.evaluated_view, places))

    def prepared(self, image: UInt8[Tensor, "3 h w"]) -> Float[Tensor, "3 s s"]:
        """Return one image as it is evaluated."""
        return self._normalised(self.centre(image)[None])[0]

    def centre(self, image: UInt8[Tensor, "3 h w"]) -> UInt8[Tensor, "3 s s"]:
        """Return the centre of the image, its short side scaled to the size."""
        return self.evaluated_view.of(image[None])[0]

    def _translated(
        self, data: DomainDataset, places: Int[Tensor, " m"], stream: torch.Generator
    ) -> UInt8[Tensor, "m 3 s s"]:
        squeezed, enlarged = self.trained_views
        is_moved = torch.rand(len(places), generator=stream) < 0.5
        room = enlarged.size - self.size + 1
        corners = torch.randint(room, (len(places), 2), generator=stream)
        images = torch.empty(len(places), 3, self.size, self.size, dtype=torch.uint8)
        images[~is_moved] = data.view(squeezed, places[~is_moved])
        large = data.view(enlarged, places[is_moved])
        positions = is_moved.nonzero()[:, 0].tolist()
        for image, position, (top, left) in zip(
            large, positions, corners[is_moved].tolist(), strict=True
        ):
            images[position] = image[:, top : top + self.size, left : left + self.size]
        return images

    def _normalised(self, images: UInt8[Tensor, "m 3 s s"]) -> Float[Tensor, "m 3 s s"]:
        mean, std = torch.tensor(self.mean)[:, None, None], torch.tensor(self.std)[:, None, None]
        # Two operations in place instead of three: it is here that most of the time goes.
        found = images.to(torch.get_default_dtype(), memory_format=torch.contiguous_format)
        return found.mul_(1 / (255 * std)).sub_(mean / std)
