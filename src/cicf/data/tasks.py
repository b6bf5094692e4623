"""The tasks of MAML: one for each source domain, in consecutive blocks of a batch."""

from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.streams import generator
from cicf.data.samplers import Role, StepSampler

Tasks = Literal["within", "cross"]
"""`within`: both batches of a task come from its domain, without a common image. `cross`: the outer
one comes from its domain, the inner one from all others."""


class TaskSampler(StepSampler):
    """Draws one batch of every task, all of the same size, one after the other.

    Both roles need the sizes of both batches: `within`, the two of a task have no image in common.
    """

    def __init__(
        self,
        domain: Int[Tensor, " n"],
        *,
        inner_size: int,
        outer_size: int,
        tasks: Tasks = "within",
        steps: int | None = None,
        seed: int = 0,
        role: Role,
    ) -> None:
        places = [(domain == each).nonzero()[:, 0] for each in domain.unique().tolist()]
        self.count = len(places)
        for name, given in (("inner.size", inner_size), ("outer.size", outer_size)):
            if given < self.count:
                raise ConfigError(
                    f"{name}={given} is less than one image for each of the {self.count} tasks; "
                    "make it larger"
                )
        self._inner, self._outer = inner_size // self.count, outer_size // self.count
        size = self.count * (self._inner if role == "inner" else self._outer)
        super().__init__(len(domain), size=size, steps=steps, seed=seed, role=role)
        self._tasks = tasks
        self._own = places
        self._others = [
            torch.cat([*places[:t], *places[t + 1 :]]) if self.count > 1 else places[t]
            for t in range(self.count)
        ]
        self._check()

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, task by task."""
        return torch.cat([self._of_task(task, step) for task in range(self.count)])

    def _of_task(self, task: int, step: int) -> Int[Tensor, " b"]:
        own = self._shuffled(self._own[task], step, task, "own")
        if self.role == "outer":
            return own[: self._outer]
        if self._tasks == "within":
            return own[self._outer : self._outer + self._inner]
        return self._shuffled(self._others[task], step, task, "others")[: self._inner]

    def _shuffled(
        self, places: Int[Tensor, " n"], step: int, task: int, name: str
    ) -> Int[Tensor, " n"]:
        # The stream has no role in its name: both batches of a task share one order.
        stream = generator(self.seed, "tasks", step, task, name)
        return places[torch.randperm(len(places), generator=stream)]

    def _settings(self) -> dict[str, int | str]:
        blocks: dict[str, int | str] = {"inner_block": self._inner, "outer_block": self._outer}
        return {**super()._settings(), "tasks": self._tasks, **blocks}

    def _check(self) -> None:
        if self._tasks == "cross" and self.count < 2:
            raise ConfigError(
                "tasks='cross' needs at least two source domains, but there is one; use 'within'"
            )
        needs = self._outer + (self._inner if self._tasks == "within" else 0)
        smallest = min(len(places) for places in self._own)
        if smallest < needs:
            raise ConfigError(
                f"each of the {self.count} tasks needs {needs} images of its domain, but one has "
                f"{smallest}; make inner.size or outer.size smaller"
            )
        fewest = min(len(places) for places in self._others)
        if self._tasks == "cross" and fewest < self._inner:
            raise ConfigError(
                f"each task needs {self._inner} images of the other domains, but there are only "
                f"{fewest} for one of them; make inner.size smaller"
            )
