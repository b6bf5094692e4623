"""Batches as a function of (seed, step): clustering-then-sampling and what it is compared with."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Literal, TypedDict

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils.data import Sampler

from cicf.core import ConfigError
from cicf.core.streams import generator
from cicf.data.strata import Strata
from cicf.maths.stratified import balanced_counts, largest_remainder_counts, proportional_counts

Scheme = Literal["proportional", "balanced"]
Rounding = Literal["systematic", "fixed"]


class SamplerState(TypedDict):
    """Is all that a sampler needs to go on from where it was."""

    settings: dict[str, int | str]
    step: int
    strata: tuple[Tensor, Tensor] | None


class StepSampler(Sampler[list[int]], ABC):
    """Yields one list of images a step; use it as `DataLoader(dataset, batch_sampler=...)`.

    An epoch has `steps` steps. The batch of a step depends on the seed and the step alone, so a run
    that goes on at a step draws what it would have drawn, whatever a loader had read ahead.
    """

    def __init__(self, num_images: int, *, size: int, steps: int | None, seed: int) -> None:
        if not 1 <= size <= num_images:
            raise ConfigError(
                f"size={size} must lie between 1 and the number of images, {num_images}; "
                "draw smaller batches"
            )
        if steps is not None and steps < 1:
            raise ConfigError(
                f"steps={steps} must be at least 1, or None for one per `size` images"
            )
        self.size, self.seed = size, seed
        self.steps = num_images // size if steps is None else steps
        self.step = 0

    @abstractmethod
    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step."""

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the batches from the present step to the end of its epoch."""
        end = (self.step // self.steps + 1) * self.steps
        while self.step < end:
            self.step += 1
            yield self.batch(self.step - 1).tolist()

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
        for name, value in self._settings().items():
            if state["settings"].get(name) != value:
                raise ConfigError(
                    f"the saved sampler had {name}={state['settings'].get(name)!r}, this one has "
                    f"{value!r}; build it with the saved settings to go on exactly"
                )
        self.step = state["step"]

    def _settings(self) -> dict[str, int | str]:
        kind = type(self).__name__
        return {"kind": kind, "size": self.size, "steps": self.steps, "seed": self.seed}


class RandomSampler(StepSampler):
    """Draws at random from all images: each at most once in every ⌊N / size⌋ steps."""

    def __init__(
        self, num_images: int, *, size: int, steps: int | None = None, seed: int = 0
    ) -> None:
        super().__init__(num_images, size=size, steps=steps, seed=seed)
        self.num_images = num_images
        self._round, self._order = -1, torch.empty(0, dtype=torch.int64)

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, a slice of the order of its round."""
        turn, place = divmod(step, self.num_images // self.size)
        if turn != self._round:
            stream = generator(self.seed, "random", turn)
            self._round, self._order = turn, torch.randperm(self.num_images, generator=stream)
        return self._order[place * self.size : (place + 1) * self.size]

    def _settings(self) -> dict[str, int | str]:
        return {**super()._settings(), "num_images": self.num_images}


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
    ) -> None:
        super().__init__(len(strata.cluster), size=size, steps=steps, seed=seed)
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
        stream = generator(self.seed, "counts", step)
        offset = torch.randint(len(self.strata.cluster), (), generator=stream)
        return proportional_counts(self.strata.sizes, self.size, int(offset))

    def restratify(self, strata: Strata) -> None:
        """Draw from new clusters of the same images from now on."""
        if len(strata.cluster) != len(self.strata.cluster):
            raise ConfigError(
                f"the new strata have {len(strata.cluster)} images, the old ones "
                f"{len(self.strata.cluster)}; cluster the same training set"
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
    the companion of balanced outer batches. No image twice, unless N_k exceeds the cluster.
    """

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, in random order."""
        return _drawn(self.strata, self.counts(step), generator(self.seed, "images", step))


class ClassWeightedSampler(_ClusterSampler):
    """Gives each class the places that it has in the stratified batch, and fills them at random."""

    def batch(self, step: int) -> Int[Tensor, " m"]:
        """Return the images of a step, in random order."""
        classes = self.strata.by_class()
        _, of_cluster = self.strata.label.unique(return_inverse=True)
        places = torch.zeros(classes.count, dtype=torch.int64)
        places.index_add_(0, of_cluster, self.counts(step))
        return _drawn(classes, places, generator(self.seed, "images", step))


def _drawn(strata: Strata, counts: Int[Tensor, " k"], stream: torch.Generator) -> Int[Tensor, " m"]:
    """Return counts[k] images of each cluster, every image ⌊N_k / N_k^K⌋ times or once more."""
    drawn = []
    for members, count in zip(strata.members, counts.tolist(), strict=True):
        whole, rest = divmod(count, len(members))
        order = torch.randperm(len(members), generator=stream)
        drawn += [members] * whole + [members[order[:rest]]]
    batch = torch.cat(drawn)
    return batch[torch.randperm(len(batch), generator=stream)]
