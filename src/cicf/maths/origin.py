"""What a tensor was computed from, for an operator that can do two layers in one.

The tensor between the two then has no part in the graph: what comes after it passes it over. A
model that asks for its slope nevertheless has to be told.
"""

from typing import NamedTuple

from torch import Tensor

from cicf.maths.convolution import Geometry


class PassedOverError(RuntimeError):
    """Says that a model asks for the slope of a tensor that our operators left out of the graph."""


class Origin(NamedTuple):
    """Remembers what a tensor was computed from: a convolution if there is a `how`, else a ReLU."""

    sources: tuple[Tensor, ...]
    how: Geometry | None
    versions: list[int]


def remember(found: Tensor, *sources: Tensor, how: Geometry | None = None) -> None:
    """Remember what a tensor was computed from."""
    found._origin = Origin(sources, how, _versions(found, sources))  # type: ignore[attr-defined]


def origin_of(value: Tensor) -> Origin | None:
    """Return what a tensor was computed from, if that holds still and nobody asks for its slope."""
    found: Origin | None = getattr(value, "_origin", None)
    if found is None or value._backward_hooks or value.retains_grad:
        return None
    return found if found.versions == _versions(value, found.sources) else None


def pass_over(value: Tensor) -> None:
    """Mark a tensor that has no part in the graph of what follows it."""
    value._is_passed_over = True  # type: ignore[attr-defined]


def is_passed_over(value: object) -> bool:
    """Tell whether what follows a tensor has been made without it."""
    return getattr(value, "_is_passed_over", False)


def _versions(value: Tensor, sources: tuple[Tensor, ...]) -> list[int]:
    return [each._version for each in (value, *sources)]
