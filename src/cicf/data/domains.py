"""Images, their labels, and the domain that each comes from."""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from cicf.core import DataError, did_you_mean
from cicf.data.images import ImageFiles
from cicf.data.views import View

Part = Literal["train", "validation", "test"]
"""What a given split uses an image of a source for; `test` is what a target is scored on."""
PARTS: tuple[Part, ...] = get_args(Part)
"""The parts of a split: train, validation, test."""


@dataclass(frozen=True, eq=False)
class DomainDataset(Dataset[tuple[Tensor, int, int]]):
    """Holds images, in memory or as files; an item is (image, class, domain), never augmented.

    `masks` say which pixels are the object, where that is known. `part` says what a given split
    uses an image for, as its place in PARTS, or −1 where it does not say.
    """

    images: UInt8[Tensor, "n 3 height width"] | ImageFiles
    y: Int[Tensor, " n"]
    domain: Int[Tensor, " n"]
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    masks: Bool[Tensor, "n height width"] | None = None
    part: Int[Tensor, " n"] | None = None

    def __getitem__(self, index: int) -> tuple[UInt8[Tensor, "3 height width"], int, int]:
        return self.images[index], int(self.y[index]), int(self.domain[index])

    def __len__(self) -> int:
        return len(self.y)

    def view(self, view: View, places: Int[Tensor, " m"]) -> UInt8[Tensor, "m 3 s s"]:
        """Return the images at these places as squares."""
        if isinstance(self.images, ImageFiles):
            return self.images.view(view, places)
        return view.of(self.images[places])

    def subset(self, places: Int[Tensor, " m"]) -> "DomainDataset":
        """Return the images at these places, with the same names of classes and domains."""
        images = self.images
        return DomainDataset(
            images.take(places) if isinstance(images, ImageFiles) else images[places],
            self.y[places],
            self.domain[places],
            self.classes,
            self.domains,
            None if self.masks is None else self.masks[places],
            None if self.part is None else self.part[places],
        )

    def of(self, *names: str) -> "DomainDataset":
        """Return the images of these domains."""
        ids = torch.tensor([self.domain_id(name) for name in names])
        return self.subset(torch.isin(self.domain, ids).nonzero()[:, 0])

    def without(self, name: str) -> "DomainDataset":
        """Return the images of all other domains: the sources, when `name` is the target."""
        return self.subset((self.domain != self.domain_id(name)).nonzero()[:, 0])

    def domain_id(self, name: str) -> int:
        """Return the number of a domain."""
        if name not in self.domains:
            raise DataError(f"{name!r} is not a domain; {did_you_mean(name, self.domains)}")
        return self.domains.index(name)
