"""Gradients of which only the derivative is wanted, so that their values need not be computed.

Pass 3 differentiates g† in the direction v and reads no number of it. An operator whose parameter
is unread returns a blank, which has its place in the graph like the gradient that it stands for.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from jaxtyping import Float
from torch import Tensor

_UNREAD: ContextVar[dict[int, Tensor] | None] = ContextVar("unread", default=None)


@contextmanager
def unread(leaves: Sequence[Tensor]) -> Iterator[None]:
    """Say that nobody reads the gradients of these leaves that are computed meanwhile."""
    token = _UNREAD.set({id(leaf): leaf for leaf in leaves})
    try:
        yield
    finally:
        _UNREAD.reset(token)


def is_unread(name: int) -> bool:
    """Tell whether nobody reads the gradient of the tensor that has this id."""
    leaf = (_UNREAD.get() or {}).get(name)
    # What a hook does with the gradient nobody knows.
    return leaf is not None and not leaf._backward_hooks


def blank(like: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return what stands for a gradient that nobody reads: its shape, in no memory."""
    return like.new_zeros(()).expand(like.shape)
