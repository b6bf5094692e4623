"""The random state that a forward reads, so that a later forward can draw the same masks."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor


class RandomState(NamedTuple):
    """Holds the states of one moment: the CPU's, each device's and each generator's."""

    cpu: Tensor
    devices: tuple[Tensor, ...]
    generators: tuple[Tensor, ...]


class RandomSource:
    """Captures and restores everything random that a loss draws from."""

    def __init__(
        self, devices: Iterable[torch.device] = (), generators: Sequence[torch.Generator] = ()
    ) -> None:
        self._devices = sorted({d for d in devices if d.type not in ("cpu", "meta")}, key=str)
        self._generators = tuple(generators)
        self._last: RandomState | None = None

    def capture(self) -> RandomState:
        """Return the present state; the same object as before, if nothing was drawn since.

        A state is small, but one for each piece of a batch lies between the large blocks of memory
        that the pieces free, and keeps them from being used again.
        """
        state = RandomState(
            torch.get_rng_state(),
            tuple(_device_state(device) for device in self._devices),
            tuple(generator.get_state() for generator in self._generators),
        )
        if self._last is None or not _are_equal(state, self._last):
            self._last = state
        return self._last

    def restore(self, state: RandomState) -> None:
        """Go back to a state, so that the same draws come again."""
        torch.set_rng_state(state.cpu)
        for device, value in zip(self._devices, state.devices, strict=True):
            _set_device_state(device, value)
        for generator, value in zip(self._generators, state.generators, strict=True):
            generator.set_state(value)

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Leave the random state as it is found, whatever is drawn in between."""
        state = self.capture()
        try:
            yield
        finally:
            self.restore(state)


def _are_equal(a: RandomState, b: RandomState) -> bool:
    pairs = zip((a.cpu, *a.devices, *a.generators), (b.cpu, *b.devices, *b.generators), strict=True)
    return all(torch.equal(one, other) for one, other in pairs)


def _device_state(device: torch.device) -> Tensor:
    module = torch.get_device_module(device)
    # Apple's has one device and takes no argument.
    state: Tensor = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    return state


def _set_device_state(device: torch.device, state: Tensor) -> None:
    module = torch.get_device_module(device)
    if device.type == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, device)
