"""Which images a figure shows, and what they are called."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

import torch
from jaxtyping import Int
from torch import Tensor

from cicf.core import ConfigError, DataError, did_you_mean
from cicf.core.streams import generator
from cicf.data.domains import PARTS, DomainDataset
from cicf.data.images import ImageFiles
from cicf.experiment import LoadedRun

Role = Literal["target", "source", "other"]
"""What a domain was to a run: tested on, trained on, or neither."""
_TEST = PARTS.index("test")


def chosen_images(
    data: DomainDataset, domains: Sequence[str], *, per_domain: int, seed: int = 0
) -> list[int]:
    """Return the places of so many images of each domain, drawn by seed, balanced over classes.

    They are in the order of the domains, then of the classes. Where a given split tests on a part
    of a domain, they are of that part. The choice of fewer is part of the choice of more.
    """
    if per_domain < 1:
        raise ConfigError(f"{per_domain} images of each domain are none; ask for at least 1")
    found = []
    for name in domains:
        here = _candidates(data, name)
        stream = generator(seed, "figure", name)
        here = here[torch.randperm(len(here), generator=stream)]
        classes = torch.randperm(len(data.classes), generator=stream).tolist()
        turn = sorted(_turns(data.y[here].tolist(), classes))
        some = here[[position for *_, position in turn[:per_domain]]]
        found += sorted(some.tolist(), key=lambda place: (int(data.y[place]), place))
    return found


def image_name(data: DomainDataset, place: int) -> str:
    """Return the path of an image from its domain's folder on, or its domain and number."""
    if isinstance(data.images, ImageFiles):
        return "/".join(data.images.paths[place].parts[-3:])
    return f"{data.domains[int(data.domain[place])]} {place}"


def class_names(data: DomainDataset, places: Sequence[int]) -> tuple[str, ...]:
    """Return the class of each image; an empty name where it is not known."""
    return tuple("" if y < 0 else data.classes[y] for y in data.y[list(places)].tolist())


def domain_names(data: DomainDataset, places: Sequence[int]) -> tuple[str, ...]:
    """Return the domain of each image."""
    return tuple(data.domains[each] for each in data.domain[list(places)].tolist())


def check_agreement(runs: Mapping[str, LoadedRun], *, must_share_data: bool) -> None:
    """Refuse runs of other classes than the first, or of other images, where they have to be."""
    (first, one), *others = runs.items()
    for name, run in others:
        if set(run.setup.classes) != set(one.setup.classes):
            raise DataError(
                f"{name} knows other classes than {first}; compare runs that were trained for the "
                "same classes"
            )
        if must_share_data and run.setup.fingerprint != one.setup.fingerprint:
            raise DataError(
                f"{name} was trained on other images ({run.setup.fingerprint}) than {first} "
                f"({one.setup.fingerprint}); name the images to show with --data"
            )
        if must_share_data and tested(run) != tested(one):
            raise DataError(
                f"{name} is tested on {_joined(tested(run))} and {first} on {_joined(tested(one))};"
                " compare runs with the same target"
            )


def tested(run: LoadedRun) -> tuple[str, ...]:
    """Return the domains that a run was tested on and has seen nothing of; there may be none."""
    setup = run.setup
    return tuple(domain for domain in setup.protocol.tested if domain not in setup.sources)


def role_of(run: LoadedRun, domain: str) -> Role:
    """Return what a domain of a run's own data was to it."""
    if domain in tested(run):
        return "target"
    return "source" if domain in run.setup.sources else "other"


def files_as_data(paths: Sequence[Path], classes: Sequence[str]) -> DomainDataset:
    """Return image files as one domain; their folders name their classes, where they do."""
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path} is no file; name an image")
    names = [path.resolve().parent.name for path in paths]
    y = [classes.index(name) if name in classes else -1 for name in names]
    domain = torch.zeros(len(paths), dtype=torch.int64)
    return DomainDataset(
        ImageFiles(tuple(paths)), torch.tensor(y), domain, tuple(classes), ("images",)
    )


def class_ids(run: LoadedRun, names: Sequence[str]) -> Int[Tensor, " n"]:
    """Return the numbers that a network has for classes."""
    known = run.setup.classes
    for name in names:
        if name not in known:
            raise DataError(
                f"class {name!r} is none that the network knows; {did_you_mean(name, known)}"
            )
    return torch.tensor([known.index(name) for name in names], dtype=torch.int64)


def _candidates(data: DomainDataset, domain: str) -> Int[Tensor, " m"]:
    is_here = data.domain == data.domain_id(domain)
    is_tested = torch.zeros_like(is_here) if data.part is None else is_here & (data.part == _TEST)
    here = (is_tested if bool(is_tested.any()) else is_here).nonzero()[:, 0]
    if not len(here):
        raise DataError(f"domain {domain!r} has no images; name another")
    return here


def _joined(names: Sequence[str]) -> str:
    return ", ".join(names) or "no domain"


def _turns(labels: Sequence[int], classes: Sequence[int]) -> list[tuple[int, int, int]]:
    """Return when each image is taken: its turn in its class, the turn of the class, its place."""
    seen = dict.fromkeys(classes, 0)
    turns = []
    for position, label in enumerate(labels):
        turns.append((seen[label], classes.index(label), position))
        seen[label] += 1
    return turns
