"""The draws of a run, each a function of its step alone."""

from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from cicf.core.draw import Draw, Samples
from cicf.core.streams import stream_seed
from cicf.data.domains import DomainDataset
from cicf.data.samplers import StepSampler
from cicf.data.transforms import Transform


class Draws(Dataset[Draw]):
    """Is the sequence of a run's draws: item t is what step t draws, in any process.

    The images of a step come from the samplers, their augmentation from (seed, step, position), so
    neither the number of workers nor an interruption changes what a run sees.
    """

    def __init__(
        self,
        data: DomainDataset,
        transform: Transform,
        *,
        outer: StepSampler,
        inner: StepSampler | None,
        seed: int,
    ) -> None:
        self._data, self._transform = data, transform
        self._outer, self._inner, self._seed = outer, inner, seed

    def __getitem__(self, step: int) -> Draw:
        return Draw(
            self._samples(self._outer, step),
            None if self._inner is None else self._samples(self._inner, step),
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
