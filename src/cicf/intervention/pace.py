"""How a step goes through its batch: in how large pieces, and whether it keeps their graphs."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from cicf.core.batch import Batch, batch_size, take, to_device
from cicf.core.memory import free_bytes
from cicf.core.pace import Pace
from cicf.intervention.objective import Objective
from cicf.maths.moving import leaves
from cicf.maths.shares import Derivative

SHARE = 0.5
"""The part of the free memory that a step is planned to take."""
BUFFERS = 5
"""What a step holds as often as there are parameters: g†, θ†, v, c, and what is on its way."""
GROWTH = 2.0
"""What a pass needs beside the graph that it walks: the gradients on its way, and copies."""


class Pacing:
    """Finds the pace of a step: as it was asked for, or at the first batch by the free memory."""

    def __init__(
        self,
        objective: Objective,
        h: Sequence[str],
        order: int,
        chunk: int | Literal["auto"] | None,
        keeps_graphs: bool | None,
    ) -> None:
        self._objective, self._h, self._order = objective, h, order
        self._keeps_graphs = keeps_graphs
        self._is_free = chunk == "auto"
        self._found: Probe | None = None
        self._largest = 0
        self.pace = None
        if chunk != "auto":
            self.pace = self._with_graphs(Pace(chunk, keeps_graphs=chunk is None))

    @property
    def pace(self) -> Pace | None:
        """The pace that was asked for, picked or set; None until there is one."""
        return self._pace

    @pace.setter
    def pace(self, value: Pace | None) -> None:
        self._pace, self._is_picked = value, False

    def of(self, batch: Batch) -> Pace:
        """Return how to go through a batch."""
        if self._is_free and self._objective.couples_samples(is_outer=False):
            return self._with_graphs(Pace())
        # What is whole in small batches may not fit in larger ones.
        is_larger = self._is_picked and batch_size(batch) > self._largest
        if self._pace is None or (is_larger and self._pace.chunk is None):
            found = self._probed(batch)
            self.pace = self._with_graphs(picked(found, batch_size(batch), self._objective))
            self._is_picked, self._largest = True, batch_size(batch)
        assert self._pace is not None
        return self._pace

    def can_be_cut(self, batch: Batch, pace: Pace) -> bool:
        """Tell whether a step may be taken again in smaller pieces."""
        is_coupled = self._objective.couples_samples(is_outer=False)
        if is_coupled or min(pace.chunk or batch_size(batch), batch_size(batch)) <= 1:
            return False
        found = self._probed(batch)
        return found is not None and found.is_per_sample

    def _probed(self, batch: Batch) -> "Probe | None":
        """Return what a probe tells; it is asked once, for there may be no memory for it later."""
        if self._found is None:
            self._found = probe(self._objective, self._h, batch, order=self._order)
        return self._found

    def _with_graphs(self, pace: Pace) -> Pace:
        if self._keeps_graphs is None:
            return pace
        return Pace(pace.chunk, self._keeps_graphs)


class Probe(NamedTuple):
    """Holds what two samples tell about a batch."""

    bytes_per_sample: float
    """What autograd saves for a sample, in pass 1 and for pass 3."""
    is_per_sample: bool
    """Whether the loss is one value per sample, so that a batch can be cut."""


def probe(objective: Objective, h: Sequence[str], batch: Batch, *, order: int) -> Probe | None:
    """Return what two samples of a batch tell; None if they cannot be computed by themselves."""
    theta, phi = (leaves(each) for each in objective.split(h))
    parameters, device = {**theta, **phi}, next(objective.parameters()).device
    size = min(2, batch_size(batch))
    few = to_device(take(batch, torch.arange(size)), device)
    constants = {value.untyped_storage().data_ptr() for value in objective.parameters()}
    shapes: list[int] = []

    def differentiated(loss: Tensor) -> Derivative:
        shapes.append(loss.ndim)
        wrt, is_curved = list(theta.values()), order == 2
        slopes = torch.autograd.grad(
            loss.sum(), wrt, create_graph=is_curved, retain_graph=True, allow_unused=True
        )
        return Derivative(loss, list(slopes), loss.ndim == 1)

    function = objective.inner_loss(is_curved=order == 2)
    try:
        saved = saved_bytes(lambda: function(parameters, few, differentiated), constants)
    except Exception:  # whatever is wrong is told by the step itself
        return None
    return Probe(saved / size, shapes == [1])


def saved_bytes(compute: Callable[[], object], constants: set[int]) -> int:
    """Return the size of all that autograd saves meanwhile, without the storages of constants."""
    seen: dict[int, int] = {}

    def save(value: Tensor) -> Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in constants:
            seen[storage.data_ptr()] = storage.nbytes()
        return value

    with torch.autograd.graph.saved_tensors_hooks(save, lambda value: value):
        kept = compute()
    del kept
    return sum(seen.values())


def picked(found: Probe | None, size: int, objective: Objective) -> Pace:
    """Return the fastest pace for a batch of this size in the memory that is free now."""
    if found is None or not found.is_per_sample:
        return Pace()
    fixed = BUFFERS * sum(value.nbytes for value in objective.parameters())
    free = free_bytes(next(objective.parameters()).device)
    return fitting(size, found.bytes_per_sample, room=SHARE * free - fixed)


def fitting(size: int, bytes_per_sample: float, *, room: float) -> Pace:
    """Return the fastest pace for a batch of this size that takes no more than the room."""
    if size * bytes_per_sample * GROWTH <= room:
        return Pace()
    chunk = size
    while chunk > 1 and chunk * bytes_per_sample * GROWTH > room:
        chunk //= 2
    return Pace(chunk, keeps_graphs=False)
