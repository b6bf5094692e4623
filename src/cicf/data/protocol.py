"""Which images a run trains on, validates with, and is tested on."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from cicf.core import ConfigError, DataError
from cicf.core.streams import generator
from cicf.data.domains import DomainDataset


class Split(NamedTuple):
    """Holds three disjoint parts; `test` is None where no domain was held out."""

    train: DomainDataset
    validation: DomainDataset
    test: DomainDataset | None


def leave_one_domain_out(
    data: DomainDataset, target: str, *, validation: float = 0.1, seed: int = 0
) -> Split:
    """Return the sources, split at random, and the whole target domain to test on.

    Of every class of every source the share `validation` is held out, at least one image and never
    all; a class with a single image in a source is trained on.
    """
    if len(data.domains) < 2:
        raise DataError(
            f"there is one domain only, {data.domains[0]!r}; leaving one out takes at least two"
        )
    return hold_out(data.without(target), validation=validation, seed=seed)._replace(
        test=data.of(target)
    )


def hold_out(data: DomainDataset, *, validation: float = 0.1, seed: int = 0) -> Split:
    """Return the data split at random within every class of every domain, and no test."""
    if not 0 < validation < 1:
        raise ConfigError(
            f"validation={validation} must be a share of the images, above 0, below 1"
        )
    held = _held_out(data.y, data.domain, validation, generator(seed, "split"))
    places = torch.arange(len(data))
    return Split(data.subset(places[~held]), data.subset(places[held]), None)


def _held_out(
    y: Int[Tensor, " n"], domain: Int[Tensor, " n"], share: float, stream: torch.Generator
) -> Tensor:
    """Return whether each image is held out."""
    held = torch.zeros(len(y), dtype=torch.bool)
    cells = domain * (int(y.max()) + 1) + y
    for cell in cells.unique().tolist():
        here = (cells == cell).nonzero()[:, 0]
        count = min(max(1, round(len(here) * share)), len(here) - 1)
        held[here[torch.randperm(len(here), generator=stream)[:count]]] = True
    return held
