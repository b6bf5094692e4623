"""Which images a run trains on, validates with, and is tested on."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from cicf.core import ConfigError, DataError
from cicf.core.streams import generator
from cicf.data.domains import PARTS, DomainDataset

VALIDATION, TEST = PARTS.index("validation"), PARTS.index("test")

Scored = Literal[
    "all images", "official test part", "official test part, elsewhere all images", "none"
]


class Split(NamedTuple):
    """Holds three disjoint parts, and how they came about; `test` is None where nothing is."""

    train: DomainDataset
    validation: DomainDataset
    test: DomainDataset | None
    rule: str
    """How training and validation were parted."""
    scored: Scored
    """What of the tested domains is in `test`."""


def leave_one_domain_out(
    data: DomainDataset,
    target: str,
    *,
    validation: float = 0.1,
    uses_given: bool = True,
    seed: int = 0,
) -> Split:
    """Return the sources, split, and the target domain to test on.

    Where the data bring a split, the sources are split by it, and the target is scored on its test
    part, if it has one, else whole. Otherwise the share `validation` of every class of every source
    is held out at random, at least one image and never all; a class with a single image in a source
    is trained on.
    """
    if len(data.domains) < 2:
        raise DataError(
            f"there is one domain only, {data.domains[0]!r}; leaving one out takes at least two"
        )
    data = data if uses_given else _unmarked(data)
    sources = hold_out(data.without(target), validation=validation, seed=seed)
    return _tested(sources, data.of(target))


def single_source(
    data: DomainDataset,
    source: str,
    *,
    validation: float = 0.1,
    uses_given: bool = True,
    seed: int = 0,
) -> Split:
    """Return one domain, split as above, and all others to test on."""
    if len(data.domains) < 2:
        raise DataError(
            f"there is one domain only, {data.domains[0]!r}; testing on others takes at least two"
        )
    data = data if uses_given else _unmarked(data)
    return _tested(
        hold_out(data.of(source), validation=validation, seed=seed), data.without(source)
    )


def hold_out(
    data: DomainDataset, *, validation: float = 0.1, uses_given: bool = True, seed: int = 0
) -> Split:
    """Return the data split within every domain; what a given split tests on is the test."""
    if not 0 < validation < 1:
        raise ConfigError(
            f"validation={validation} must be a share of the images, above 0, below 1"
        )
    data = data if uses_given else _unmarked(data)
    test = data.subset(_places(_is(data, TEST)))
    rest = data.subset(_places(~_is(data, TEST)))
    marked = _is(rest, VALIDATION)
    has_marks = torch.isin(rest.domain, rest.domain[marked].unique())
    held = marked.clone()
    held[~has_marks] = _held_out(
        rest.y[~has_marks], rest.domain[~has_marks], validation, generator(seed, "split")
    )
    return Split(
        train=rest.subset(_places(~held)),
        validation=rest.subset(_places(held)),
        test=test if len(test) else None,
        rule=_rule(validation, has_marks),
        scored="official test part" if len(test) else "none",
    )


def _tested(sources: Split, targets: DomainDataset) -> Split:
    """Return the split of the sources, tested on the targets instead of on parts of their own."""
    is_test = _is(targets, TEST)
    has_test = torch.isin(targets.domain, targets.domain[is_test].unique())
    scored: Scored = "official test part, elsewhere all images"
    if bool(has_test.all()):
        scored = "official test part"
    if not bool(has_test.any()):
        scored = "all images"
    return sources._replace(test=targets.subset(_places(is_test | ~has_test)), scored=scored)


def _rule(validation: float, has_marks: Bool[Tensor, " n"]) -> str:
    if bool(has_marks.all()) and len(has_marks):
        return "the given lists"
    drawn = f"{100 * validation:g} % of every class, drawn by seed"
    return f"the given lists, elsewhere {drawn}" if bool(has_marks.any()) else drawn


def _is(data: DomainDataset, part: int) -> Bool[Tensor, " n"]:
    return torch.zeros(len(data), dtype=torch.bool) if data.part is None else data.part == part


def _unmarked(data: DomainDataset) -> DomainDataset:
    return DomainDataset(
        data.images, data.y, data.domain, data.classes, data.domains, masks=data.masks
    )


def _places(mask: Bool[Tensor, " n"]) -> Int[Tensor, " m"]:
    return mask.nonzero()[:, 0]


def _held_out(
    y: Int[Tensor, " n"], domain: Int[Tensor, " n"], share: float, stream: torch.Generator
) -> Bool[Tensor, " n"]:
    """Return whether each image is held out."""
    held = torch.zeros(len(y), dtype=torch.bool)
    if not len(y):
        return held
    cells = domain * (int(y.max()) + 1) + y
    for cell in cells.unique().tolist():
        here = (cells == cell).nonzero()[:, 0]
        count = min(max(1, round(len(here) * share)), len(here) - 1)
        held[here[torch.randperm(len(here), generator=stream)[:count]]] = True
    return held
