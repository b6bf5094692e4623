"""The draws of a run, each a function of its step alone; and images as they are evaluated."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from cicf.core.draw import Draw, Samples
from cicf.core.streams import generator, stream_seed
from cicf.data.domains import DomainDataset
from cicf.data.samplers import StepSampler
from cicf.data.sampling import Samplers
from cicf.data.transforms import Transform

Read = TypeVar("Read")


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
        seed = stream_seed(self._seed, sampler.role, step)
        images = self._transform.training(self._data, places, seed=seed)
        return Samples(images, self._data.y[places], self._data.domain[places], places)


class Evaluated(Dataset[Sequence[object]]):
    """Is a data set as a network is evaluated on it: an item is (image, class, domain, place)."""

    def __init__(self, data: DomainDataset, transform: Transform) -> None:
        self._data, self._transform = data, transform

    def __getitem__(self, place: int) -> tuple[Tensor, int, int, int]:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: Sequence[int]) -> list[tuple[Tensor, int, int, int]]:
        """Return several items, as loaders ask for them: made in one go."""
        found = self.batch(torch.as_tensor(places))
        labels = (found.y.tolist(), found.domain.tolist(), found.place.tolist())
        return list(zip(found.x, *labels, strict=True))

    def __len__(self) -> int:
        return len(self._data)

    def batch(self, places: Int[Tensor, " m"]) -> Samples:
        """Return the images at these places, with what is known of them."""
        data = self._data
        images = self._transform.evaluation(data, places)
        return Samples(images, data.y[places], data.domain[places], places)


class _Batches(Dataset[Samples]):
    """Is an evaluated data set whose items are batches, asked for by their places."""

    def __init__(self, data: Evaluated) -> None:
        self._data = data

    def __getitem__(self, places: Int[Tensor, " m"]) -> Samples:
        return self._data.batch(places)


def iterate(
    draws: Draws, *, start: int, stop: int, num_workers: int = 0, pins_memory: bool = False
) -> Iterator[Draw]:
    """Yield the draws of the steps from `start` to before `stop`."""
    yield from _read(draws, range(start, stop), num_workers=num_workers, pins_memory=pins_memory)


def batches(
    data: Evaluated, *, size: int, num_workers: int = 0, shuffle_seed: int | None = None
) -> Iterator[Samples]:
    """Yield all images in batches, in their own order or in one that depends on the seed alone."""
    order = (
        torch.arange(len(data))
        if shuffle_seed is None
        else torch.randperm(len(data), generator=generator(shuffle_seed, "shuffle"))
    )
    if len(data):
        yield from _read(_Batches(data), order.split(size), num_workers=num_workers)


def _read(
    dataset: Dataset[Read], keys: Sequence[object], *, num_workers: int, pins_memory: bool = False
) -> Iterator[Read]:
    """Yield an item of the data set for each key, in their order, read ahead of being asked for."""
    if num_workers == 0:
        yield from _read_ahead(dataset, keys)
        return
    loader: DataLoader[Read] = DataLoader(
        dataset,
        batch_size=None,
        sampler=keys,
        num_workers=num_workers,
        pin_memory=pins_memory,
        # One of its own, or a loader would draw from the global random state.
        generator=torch.Generator(),
    )
    yield from loader


def _read_ahead(dataset: Dataset[Read], keys: Sequence[object]) -> Iterator[Read]:
    """Yield the items, each made by a thread while the one before it is used.

    Like a worker, the thread keeps to one core, which torch sets for each thread by itself: sums
    over images come out the same in both, and the step has the other cores.
    """
    try:
        with ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,)) as thread:
            coming: Future[Read] | None = None
            for key in keys:
                ready, coming = coming, thread.submit(dataset.__getitem__, key)
                if ready is not None:
                    yield ready.result()
            if coming is not None:
                yield coming.result()
    finally:
        # Threads that others start later get the number that was set last.
        torch.set_num_threads(torch.get_num_threads())
