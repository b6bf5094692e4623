"""Gradients that go straight into their sums, so that they take no memory of their own.

The gradient of a weight is a product of two matrices. Where only its sum over pieces is wanted, the
product is added to that sum as it is made; for a large linear layer it would be as large as the
layer, for every piece and every place in the graph that has a part in it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from jaxtyping import Float
from torch import Tensor

Adder = Callable[[Float[Tensor, "n o"], Float[Tensor, "n c"]], None]
"""Adds aᵀ b to the sum of a gradient."""

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


def adder_of(name: int) -> Adder | None:
    """Return what adds to the gradient of the tensor that has this id, if there is such a sum."""
    return (_ADDERS.get() or {}).get(name)
