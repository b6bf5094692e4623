"""Batches made of blocks: as many images of each domain, of two domains, or of matched groups."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.streams import generator, stream_seed
from cicf.data.samplers import RandomSampler, Role, StepSampler


class DomainSampler(StepSampler):
    """Draws as many images of every domain, domain after domain.

    Of a domain, each image comes at most once in every round through it.
    """

    def __init__(
        self,
        domain: Int[Tensor, " n"],
        *,
        size: int,
        steps: int | None = None,
        seed: int = 0,
        role: Role = "outer",
    ) -> None:
        self._places = [(domain == each).nonzero()[:, 0] for each in domain.unique().tolist()]
        self.count = len(self._places)
        blocks = self._blocks()
        block = size // blocks
        smallest = min(len(places) for places in self._places)
        if not 1 <= block <= smallest:
            raise ConfigError(
                f"{role}.size={size} is {block} images for each block of one domain, but the "
                f"domains have {smallest} training images or more; it must be between 1 and that"
            )
        super().__init__(len(domain), size=block * blocks, steps=steps, seed=seed, role=role)
        self._samplers = [
            RandomSampler(len(places), size=block, seed=stream_seed(seed, role, "domain", number))
            for number, places in enumerate(self._places)
        ]

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, domain by domain."""
        return torch.cat([self._of_domain(number, step) for number in range(self.count)])

    def _blocks(self) -> int:
        return self.count

    def _of_domain(self, number: int, step: int) -> Int[Tensor, " b"]:
        found: Tensor = self._places[number][self._samplers[number].batch(step)]
        return found


class PairSampler(DomainSampler):
    """Draws half of a batch from one domain and half from another, which two at random."""

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, first those of one domain."""
        stream = generator(self.seed, self.role, "pair", step)
        two = torch.randperm(self.count, generator=stream)[:2].tolist()
        return torch.cat([self._of_domain(number, step) for number in two])

    def _blocks(self) -> int:
        return min(2, self.count)


@dataclass(frozen=True, eq=False)
class Groups:
    """Holds images that belong together, such as those matched across domains: a row a group."""

    places: Int[Tensor, "g d"]


class GroupSampler(StepSampler):
    """Draws whole groups, each at most once in every round through them, one after the other."""

    def __init__(
        self,
        groups: Groups,
        num_images: int,
        *,
        size: int,
        steps: int | None = None,
        seed: int = 0,
        role: Role = "inner",
    ) -> None:
        self._groups = groups.places
        count, members = self._groups.shape
        most = min(size // members, count)
        if most < 1:
            raise ConfigError(
                f"{role}.size={size} is less than a group of {members} matched images; make it "
                "larger"
            )
        super().__init__(num_images, size=most * members, steps=steps, seed=seed, role=role)
        self._rows = RandomSampler(count, size=most, seed=seed, role=role)

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, group by group."""
        return self._groups[self._rows.batch(step)].flatten()
