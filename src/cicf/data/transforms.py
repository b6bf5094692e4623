"""From images to what a network takes: size, augmentation, normalisation, for whole batches."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from numpy.lib.stride_tricks import sliding_window_view
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
AT_ONCE = 1 << 15
"""Values that are normalised at a time; of more, torch would give a part to other cores."""


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
            _flip(images, torch.rand(len(places), generator=stream) < 0.5)
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
        images = np.empty((len(places), 3, self.size, self.size), dtype=np.uint8)
        images[~is_moved.numpy()] = data.view(squeezed, places[~is_moved]).numpy()
        large = data.view(enlarged, places[is_moved])
        images[is_moved.numpy()] = _cut_out(large, corners[is_moved], self.size)
        return torch.from_numpy(images)

    def _normalised(self, images: UInt8[Tensor, "m 3 s s"]) -> Float[Tensor, "m 3 s s"]:
        mean, std = torch.tensor(self.mean)[:, None, None], torch.tensor(self.std)[:, None, None]
        scale, shift = 1 / (255 * std), mean / std
        found = torch.empty(images.shape)
        # A few at a time: they stay in the processor's own memory, and one core's work.
        few = max(1, AT_ONCE // math.prod(images.shape[1:]))
        for some, pixels in zip(found.split(few), images.split(few), strict=True):
            some.copy_(pixels).mul_(scale).sub_(shift)
        return found


# NumPy moves single bytes four times faster than torch.
def _flip(images: UInt8[Tensor, "m 3 s s"], is_flipped: Bool[Tensor, " m"]) -> None:
    pixels, which = images.numpy(), is_flipped.numpy()
    pixels[which] = pixels[which][..., ::-1]


def _cut_out(
    images: UInt8[Tensor, "m 3 r r"], corners: Int[Tensor, "m 2"], size: int
) -> UInt8[np.ndarray, "m 3 s s"]:
    windows = sliding_window_view(images.numpy(), (size, size), axis=(2, 3))
    top, left = corners.numpy().T
    return windows[np.arange(len(images)), :, top, left]
