"""What a method draws in a step, as a value, and the samplers that draw it."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from cicf.core import ConfigError, DataError
from cicf.data.blocks import DomainSampler, Groups, GroupSampler, PairSampler
from cicf.data.domains import DomainDataset
from cicf.data.folder import ONLY_DOMAIN
from cicf.data.samplers import (
    ClassWeightedSampler,
    RandomSampler,
    Rounding,
    Scheme,
    StepSampler,
    StratifiedSampler,
)
from cicf.data.strata import Strata
from cicf.data.tasks import TaskSampler

Inner = Literal["random", "class-weighted", "clusters", "within", "cross", "groups"]
"""Where the inner batch comes from: all images, the places of a stratified batch filled class by
class, clusters (clustering-then-sampling), the domains as tasks, or groups of matched images."""
Outer = Literal["random", "domains", "pairs"]
"""Where the outer batch comes from: all images, every domain alike, or two domains alike."""
INNER_SIZE, OUTER_SIZE = 256, 84
"""M and M^l of the paper."""


@dataclass(frozen=True, slots=True)
class Sampling:
    """Says what a method draws in a step; an inner batch only if it asks for one."""

    inner: Inner | None = None
    scheme: Scheme = "proportional"
    rounding: Rounding = "systematic"
    outer: Outer = "random"
    groups: Groups | None = None
    """With `groups`, which images belong together."""

    @property
    def needs_clusters(self) -> bool:
        """Tell whether the training set has to be clustered."""
        return self.inner in ("class-weighted", "clusters")

    @property
    def needs_domains(self) -> bool:
        """Tell whether images have to say which domain they come from."""
        return self.inner in ("within", "cross", "groups") or self.outer != "random"

    @property
    def has_tasks(self) -> bool:
        """Tell whether both batches consist of a block for each task."""
        return self.inner in ("within", "cross")


class Sizes(NamedTuple):
    """Holds M and M^l of a run, and what a user should know about how they were found."""

    inner: int
    outer: int
    notes: tuple[str, ...]


class Samplers(NamedTuple):
    """Holds the samplers of a run; a batch is `tasks` blocks of the same size."""

    outer: StepSampler
    inner: StepSampler | None
    tasks: int = 1


def batch_sizes(
    sampling: Sampling,
    data: DomainDataset,
    *,
    inner: int | None,
    outer: int | None,
    most: tuple[int, int] = (INNER_SIZE, OUTER_SIZE),
) -> Sizes:
    """Return the sizes of the batches: as asked for, or `most`, or fewer where data are few.

    What was asked for is never changed; a size that the data cannot fill is an error.
    """
    count = len(data)
    asked = {"inner.size": inner if sampling.inner is not None else None, "outer.size": outer}
    for name, size in asked.items():
        if size is not None and size > count:
            raise ConfigError(
                f"{name}={size} is larger than the training set, which has {count} images; "
                f"make it smaller, or {name}=None for what fits"
            )
    most_inner, most_outer = most
    room = _task_room(sampling, data) if sampling.has_tasks else _room(count)
    if sampling.outer != "random":
        room = _block_room(room, data, sampling.outer)
    found_outer = outer or room.fitting(min(most_outer, room.outer), beside=inner or 0)
    found_inner = inner or room.fitting(min(most_inner, room.inner), beside=found_outer)
    notes = []
    if outer is None and found_outer < most_outer:
        notes.append(_note("outer", found_outer, most_outer, room))
    if inner is None and found_inner < most_inner and sampling.inner is not None:
        notes.append(_note("inner", found_inner, most_inner, room))
    return Sizes(found_inner, found_outer, tuple(notes))


def make_samplers(
    sampling: Sampling, data: DomainDataset, sizes: Sizes, *, strata: Strata | None, seed: int
) -> Samplers:
    """Return the samplers of both batches; an epoch has ⌊N / M^l⌋ steps for each of them."""
    if sampling.needs_domains:
        check_named(data)
    if sampling.has_tasks:
        return _tasks(sampling, data, sizes, seed)
    steps = len(data) // sizes.outer
    tasks = 1
    if sampling.outer != "random":
        kinds = {"domains": DomainSampler, "pairs": PairSampler}
        blocks = kinds[sampling.outer](data.domain, size=sizes.outer, steps=steps, seed=seed)
        outer: StepSampler = blocks
        tasks = blocks.count if sampling == Sampling(outer="domains") else 1
    elif sampling.scheme == "balanced" and sampling.needs_clusters:
        assert strata is not None
        outer = StratifiedSampler(
            strata, size=sizes.outer, scheme="balanced", steps=steps, seed=seed, role="outer"
        )
    else:
        outer = RandomSampler(len(data), size=sizes.outer, seed=seed)
    if sampling.inner is None:
        return Samplers(outer, None, tasks)
    if sampling.inner == "groups":
        assert sampling.groups is not None
        return Samplers(
            outer,
            GroupSampler(sampling.groups, len(data), size=sizes.inner, steps=steps, seed=seed),
        )
    if sampling.inner == "random":
        inner = RandomSampler(len(data), size=sizes.inner, steps=steps, seed=seed, role="inner")
        return Samplers(outer, inner)
    assert strata is not None
    kind = StratifiedSampler if sampling.inner == "clusters" else ClassWeightedSampler
    return Samplers(
        outer,
        kind(
            strata,
            size=sizes.inner,
            scheme=sampling.scheme,
            rounding=sampling.rounding,
            steps=steps,
            seed=seed,
        ),
    )


def check_named(data: DomainDataset) -> None:
    """Refuse images of which nobody said where they come from."""
    if data.domains == (ONLY_DOMAIN,):
        raise DataError(
            "this method needs to know the domain of each image, but the folder names none; "
            "arrange it as domain/class/image.jpg, or use a method without domain labels (cicf)"
        )


def _tasks(sampling: Sampling, data: DomainDataset, sizes: Sizes, seed: int) -> Samplers:
    assert sampling.inner == "within" or sampling.inner == "cross"
    steps = len(data) // sizes.outer
    outer, inner = (
        TaskSampler(
            data.domain,
            inner_size=sizes.inner,
            outer_size=sizes.outer,
            tasks=sampling.inner,
            steps=steps,
            seed=seed,
            role=role,
        )
        for role in ("outer", "inner")
    )
    return Samplers(outer, inner, outer.count)


class _Room(NamedTuple):
    """Holds how many images the batches need and can have: each at least, each at most, both."""

    least: int
    inner: int
    outer: int
    both: int
    reason: str

    def fitting(self, size: int, *, beside: int) -> int:
        """Return the size of one batch, such that both fit; `beside` is that of the other."""
        left = self.both - beside
        return max(min(self.least, left), min(size, left), 1)


def _room(count: int) -> _Room:
    # Two at least, where there are two: batch norm takes no statistics of a single image.
    outer = min(count, max(2, count * OUTER_SIZE // INNER_SIZE))
    return _Room(1, count, outer, 2 * count, f"the training set has {count} images")


def _block_room(room: _Room, data: DomainDataset, outer: Outer) -> _Room:
    """Return the room for outer batches with as many images of all domains, or of two of them."""
    counts = data.domain.unique(return_counts=True)[1]
    smallest, count = int(counts.min()), len(counts)
    reason = f"the {count} domains have {smallest} training images or more"
    blocks = min(2, count) if outer == "pairs" else count
    least = blocks * min(2, smallest)
    most = max(least, min(room.outer, blocks * smallest))
    return room._replace(least=least, outer=most, reason=reason)


def _task_room(sampling: Sampling, data: DomainDataset) -> _Room:
    """Return the room for tasks, whose blocks are as large as the smallest domain allows."""
    ids, counts = data.domain.unique(return_counts=True)
    tasks, smallest, largest = len(ids), int(counts.min()), int(counts.max())
    reason = f"the {tasks} domains have {smallest} to {largest} training images"
    own = tasks * smallest
    # Two images a task, where there are enough: batch norm takes no statistics of a single one.
    least = 2 * tasks if smallest >= 4 else tasks
    if sampling.inner == "cross":
        count = len(data)
        inner = min(count, tasks * (count - largest))
        return _Room(least, inner, min(own, _room(count).outer), 2 * count, reason)
    if smallest < 2:
        raise ConfigError(
            "tasks='within' takes both batches of a task from its domain, so that each needs at "
            f"least 2 training images, but {data.domains[int(ids[counts.argmin()])]!r} has 1; "
            "add images, or use tasks='cross'"
        )
    return _Room(least, own, own * OUTER_SIZE // (INNER_SIZE + OUTER_SIZE), own, reason)


def _note(name: str, size: int, usual: int, room: _Room) -> str:
    return f"{name}.size is {size} instead of {usual}, because {room.reason}"
