"""Gradients that go straight into their sums, so that they take no memory of their own.

The gradient of a weight is made of products of matrices. Where only its sum over pieces is wanted,
they are added to that sum as they are made; by itself it would be as large as the layer, for every
piece and every place in the graph that has a part in it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from jaxtyping import Float
from torch import Tensor

Made = Callable[[Float[Tensor, "..."] | None], Float[Tensor, "..."]]
"""Adds a gradient to a sum in place and returns it; without a sum, returns one of its own."""
Adder = Callable[[Made], None]
"""Lets a gradient be made in its sum."""

_ADDERS: ContextVar[Mapping[int, Adder] | None] = ContextVar("adders", default=None)


@contextmanager
def straight(adders: Mapping[int, Adder]) -> Iterator[None]:
    """Let gradients of leaves, by their ids, be added where they belong while they are found.

    Only where no graph of them is made, since there is nothing that it could be hung on.
    """
    token = _ADDERS.set(adders)
    try:
        yield
    finally:
        _ADDERS.reset(token)


def made(name: int, make: Made) -> Float[Tensor, "..."] | None:
    """Return the gradient of the tensor that has this id, or None where it went into its sum."""
    add = (_ADDERS.get() or {}).get(name)
    if add is None:
        return make(None)
    add(make)
    return None
