"""Batches as a function of (seed, step): clustering-then-sampling and what it is compared with."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, TypedDict

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Sampler

from cicf.core import ConfigError, DataError
from cicf.core.streams import generator
from cicf.data.strata import Strata
from cicf.maths.stratified import balanced_counts, largest_remainder_counts, proportional_counts

Scheme = Literal["proportional", "balanced"]
Rounding = Literal["systematic", "fixed"]
Role = Literal["inner", "outer"]
"""Which of a step's two batches is drawn: with one seed, the two are drawn independently."""


class SamplerState(TypedDict):
    """Is all that a sampler needs to go on from where it was."""

    settings: dict[str, int | str]
    step: int
    strata: tuple[Tensor, Tensor] | None


class StepSampler(Sampler[list[int]], ABC):
    """Yields one list of images a step; use it as `DataLoader(dataset, batch_sampler=...)`.

    An epoch has `steps` steps. The batch of a step depends on the settings and the step alone, so a
    run that goes on at a step draws what it would have drawn, whatever a loader had read ahead.
    """

    def __init__(
        self, num_images: int, *, size: int, steps: int | None, seed: int, role: Role
    ) -> None:
        self.num_images, self.size = _whole("num_images", num_images), _whole("size", size)
        if not 1 <= self.size <= self.num_images:
            raise ConfigError(
                f"size={size} must lie between 1 and the number of images, {num_images}; "
                "draw smaller batches"
            )
        self.steps = num_images // size if steps is None else _whole("steps", steps)
        if self.steps < 1:
            raise ConfigError(
                f"steps={steps} must be at least 1, or None for one per `size` images"
            )
        if role not in ("inner", "outer"):
            raise ConfigError(f"role={role!r} must be 'inner' or 'outer'")
        self.seed, self.role = _whole("seed", seed), role
        self.step = 0
        self._is_resumed = False

    @abstractmethod
    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step."""

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches of the next epoch; after `load_state_dict`, the rest of the present."""
        if not self._is_resumed:
            self.step = -(-self.step // self.steps) * self.steps
        self._is_resumed = False
        start = self.step
        for step in range(start, (start // self.steps + 1) * self.steps):
            self.step = step + 1
            yield self.batch(step).tolist()

    def __len__(self) -> int:
        """Return the number of steps in an epoch."""
        return self.steps

    def state_dict(self, step: int | None = None) -> SamplerState:
        """Return what `load_state_dict` needs to go on.

        A loader with workers reads ahead: pass the number of steps that were really taken.
        """
        return SamplerState(
            settings=self._settings(), step=self.step if step is None else step, strata=None
        )

    def load_state_dict(self, state: SamplerState) -> None:
        """Go on from a state that a sampler of the same settings was in."""
        if not {"settings", "step", "strata"} <= set(state):
            raise DataError("this is no state of a sampler; pass what its state_dict() returned")
        for name, value in self._settings().items():
            if state["settings"].get(name) != value:
                raise ConfigError(
                    f"the saved sampler had {name}={state['settings'].get(name)!r}, this one has "
                    f"{value!r}; build it with the saved settings to go on exactly"
                )
        if _whole("step", state["step"]) < 0:
            raise DataError(f"the saved step is {state['step']}, but steps are counted from 0")
        self.step, self._is_resumed = state["step"], True

    def _stream(self, *names: str | int) -> torch.Generator:
        return generator(self.seed, self.role, self.size, *names)

    def _settings(self) -> dict[str, int | str]:
        return {
            "kind": type(self).__name__,
            "num_images": self.num_images,
            "size": self.size,
            "steps": self.steps,
            "seed": self.seed,
            "role": self.role,
        }


class RandomSampler(StepSampler):
    """Draws at random from all images: each at most once in every ⌊N / size⌋ steps."""

    def __init__(
        self,
        num_images: int,
        *,
        size: int,
        steps: int | None = None,
        seed: int = 0,
        role: Role = "outer",
    ) -> None:
        super().__init__(num_images, size=size, steps=steps, seed=seed, role=role)
        self._round, self._order = -1, torch.empty(0, dtype=torch.int64)

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, a slice of the order of its round."""
        turn, place = divmod(step, self.num_images // self.size)
        if turn != self._round:
            stream = self._stream("random", turn)
            self._round, self._order = turn, torch.randperm(self.num_images, generator=stream)
        return self._order[place * self.size : (place + 1) * self.size]


class _ClusterSampler(StepSampler, ABC):
    """Draws N_k places for each cluster, and then images for the places."""

    def __init__(
        self,
        strata: Strata,
        *,
        size: int,
        scheme: Scheme = "proportional",
        rounding: Rounding = "systematic",
        steps: int | None = None,
        seed: int = 0,
        role: Role = "inner",
    ) -> None:
        if not isinstance(strata, Strata):
            raise ConfigError(
                f"strata is a {type(strata).__name__}; pass what cluster_by_class returns"
            )
        super().__init__(len(strata.cluster), size=size, steps=steps, seed=seed, role=role)
        if scheme not in ("proportional", "balanced"):
            raise ConfigError(f"scheme={scheme!r} must be 'proportional' or 'balanced'")
        if rounding not in ("systematic", "fixed"):
            raise ConfigError(f"rounding={rounding!r} must be 'systematic' or 'fixed'")
        self.scheme, self.rounding = scheme, rounding
        self.strata = strata

    def counts(self, step: int) -> Int[Tensor, " k"]:
        """Return N_k, the places that each cluster has in the batch of a step; they add up to M."""
        if self.scheme == "balanced":
            return balanced_counts(self.strata.count, self.size, step)
        if self.rounding == "fixed":
            return largest_remainder_counts(self.strata.sizes, self.size)
        offset = torch.randint(self.num_images, (), generator=self._stream("counts", step))
        return proportional_counts(self.strata.sizes, self.size, int(offset))

    def restratify(self, strata: Strata) -> None:
        """Draw from new clusters of the same images from now on."""
        if len(strata.cluster) != self.num_images:
            raise ConfigError(
                f"the new strata have {len(strata.cluster)} images, the old ones "
                f"{self.num_images}; cluster the same training set"
            )
        self.strata = strata

    def state_dict(self, step: int | None = None) -> SamplerState:
        """Return what `load_state_dict` needs to go on, the clusters included."""
        strata = self.strata.cluster, self.strata.label
        return SamplerState(**{**super().state_dict(step), "strata": strata})

    def load_state_dict(self, state: SamplerState) -> None:
        """Go on from a state, with the clusters it was drawn from."""
        super().load_state_dict(state)
        assert state["strata"] is not None
        self.restratify(Strata(*state["strata"]))

    def _settings(self) -> dict[str, int | str]:
        return {**super()._settings(), "scheme": self.scheme, "rounding": self.rounding}


class StratifiedSampler(_ClusterSampler):
    """Draws N_k images from cluster k: clustering-then-sampling, line 5 of Algorithm 1.

    `proportional`: N_k = M P(K_k), the companion of random outer batches. `balanced`: N_k = M / K†,
    the companion of balanced outer batches, whose sampler has `role="outer"`. No image comes twice,
    unless N_k exceeds the cluster.
    """

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, in random order."""
        return _drawn(self.strata, self.counts(step), self._stream("stratified", step))


class ClassWeightedSampler(_ClusterSampler):
    """Gives each class the places that it has in the stratified batch, and fills them at random."""

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, in random order."""
        classes = self.strata.by_class
        _, of_cluster = self.strata.label.unique(return_inverse=True)
        places = torch.zeros(classes.count, dtype=torch.int64)
        places.index_add_(0, of_cluster, self.counts(step))
        return _drawn(classes, places, self._stream("class-weighted", step))


def _drawn(strata: Strata, counts: Int[Tensor, " k"], stream: torch.Generator) -> Int[Tensor, " m"]:
    """Return counts[k] images of each cluster, every image ⌊N_k / N_k^K⌋ times or once more."""
    drawn = []
    for members, count in zip(strata.members, counts.tolist(), strict=True):
        if count == 0:
            continue
        whole, rest = divmod(count, len(members))
        order = torch.randperm(len(members), generator=stream)
        drawn += [members] * whole + [members[order[:rest]]]
    batch = torch.cat(drawn)
    return batch[torch.randperm(len(batch), generator=stream)]


def _whole(name: str, value: object) -> int:
    """Return a whole number as a plain int: NumPy's would name another random stream."""
    try:
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError as error:
        raise ConfigError(f"{name}={value!r:.40} must be a whole number") from error
