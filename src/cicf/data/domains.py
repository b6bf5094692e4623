"""Images, their labels, and the domain that each comes from."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.utils.data import Dataset

from cicf.core import DataError, did_you_mean


@dataclass(frozen=True, eq=False)
class DomainDataset(Dataset[tuple[Tensor, int, int]]):
    """Holds images in memory; an item is (image in [0, 1], class, domain), never augmented.

    `masks` say which pixels are the object, where that is known.
    """

    images: UInt8[Tensor, "n 3 height width"]
    y: Int[Tensor, " n"]
    domain: Int[Tensor, " n"]
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    masks: Bool[Tensor, "n height width"] | None = None

    def __getitem__(self, index: int) -> tuple[Float[Tensor, "3 height width"], int, int]:
        return self.images[index] / 255, int(self.y[index]), int(self.domain[index])

    def __len__(self) -> int:
        return len(self.y)

    def subset(self, places: Int[Tensor, " m"]) -> "DomainDataset":
        """Return the images at these places, with the same names of classes and domains."""
        return DomainDataset(
            self.images[places],
            self.y[places],
            self.domain[places],
            self.classes,
            self.domains,
            None if self.masks is None else self.masks[places],
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


def join(parts: list[DomainDataset]) -> DomainDataset:
    """Return data sets of the same classes and domains as one, in their order."""
    first = parts[0]
    assert all(
        (part.classes, part.domains) == (first.classes, first.domains)
        and (part.masks is None) == (first.masks is None)
        for part in parts
    )
    masks = [part.masks for part in parts if part.masks is not None]
    return DomainDataset(
        torch.cat([part.images for part in parts]),
        torch.cat([part.y for part in parts]),
        torch.cat([part.domain for part in parts]),
        first.classes,
        first.domains,
        torch.cat(masks) if masks else None,
    )
