"""The draws of a run, each a function of its step alone; and images as they are evaluated."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cicf.core.draw import Draw, Samples
from cicf.core.streams import generator, stream_seed
from cicf.data.domains import DomainDataset
from cicf.data.samplers import StepSampler
from cicf.data.sampling import Samplers
from cicf.data.transforms import Transform


class Draws(Dataset[Draw]):
    """Is the sequence of a run's draws: item t is what step t draws, in any process.

    The images of a step come from the samplers, their augmentation from (seed, step, position), so
    neither the number of workers nor an interruption changes what a run sees.
    """

    def __init__(
        self, data: DomainDataset, transform: Transform, samplers: Samplers, *, seed: int
    ) -> None:
        self._data, self._transform = data, transform
        self._samplers, self._seed = samplers, seed

    def __getitem__(self, step: int) -> Draw:
        outer, inner, tasks = self._samplers
        return Draw(
            self._samples(outer, step),
            None if inner is None else self._samples(inner, step),
            tasks,
        )

    def _samples(self, sampler: StepSampler, step: int) -> Samples:
        places = sampler.batch(step)
        images = [
            self._transform.training(
                self._data.images[place], stream_seed(self._seed, sampler.role, step, position)
            )
            for position, place in enumerate(places.tolist())
        ]
        return Samples(torch.stack(images), self._data.y[places], self._data.domain[places], places)


class Evaluated(Dataset[Sequence[object]]):
    """Is a data set as a network is evaluated on it: an item is (image, class, domain, place)."""

    def __init__(self, data: DomainDataset, transform: Transform) -> None:
        self._data, self._transform = data, transform

    def __getitem__(self, place: int) -> tuple[Tensor, int, int, int]:
        image, y, domain = self._data[place]
        return self._transform.evaluation(image), y, domain, place

    def __len__(self) -> int:
        return len(self._data)


def iterate(
    draws: Draws, *, start: int, stop: int, num_workers: int = 0, pins_memory: bool = False
) -> Iterator[Draw]:
    """Yield the draws of the steps from `start` to before `stop`."""
    loader: DataLoader[Draw] = DataLoader(
        draws,
        batch_size=None,
        sampler=range(start, stop),
        num_workers=num_workers,
        pin_memory=pins_memory,
        generator=torch.Generator(),
    )
    yield from loader


def batches(
    data: Evaluated, *, size: int, num_workers: int = 0, shuffle_seed: int | None = None
) -> Iterator[Samples]:
    """Yield all images in batches, in their own order or in one that depends on the seed alone."""
    places = range(len(data))
    order = (
        list(places)
        if shuffle_seed is None
        else torch.randperm(len(data), generator=generator(shuffle_seed, "shuffle")).tolist()
    )
    loader: DataLoader[Sequence[object]] = DataLoader(
        data, batch_size=size, sampler=order, num_workers=num_workers, generator=torch.Generator()
    )
    for batch in loader:
        yield Samples(*batch)
