"""Gradients that go straight into their sums, so that they take no memory of their own.

The gradient of a weight is made of products of matrices. Where only its sum over pieces is wanted,
they are added to that sum as they are made; by itself it would be as large as the layer, for every
piece and every place in the graph that has a part in it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from jaxtyping import Float
from torch import _C, Tensor
from torch.autograd.graph import Node

Made = Callable[[Float[Tensor, "..."] | None], Float[Tensor, "..."]]
"""Adds a gradient to a sum in place and returns it; without a sum, returns one of its own."""
Adder = Callable[[Made], None]
"""Lets a gradient be made in its sum."""


class Walk:
    """Is one walk of autograd through a graph, from when it has begun.

    Functions of a user's own may ask autograd for gradients on the way, which are walks of theirs.
    """

    def __init__(self) -> None:
        self._tasks: list[int] = []

    @property
    def is_current(self) -> bool:
        """Tell whether what is computed now is part of this walk, and of no other inside of it."""
        return self._tasks[:1] == [_C._current_graph_task_id()]

    @contextmanager
    def begun_at(self, roots: Iterable[Node | None]) -> Iterator[None]:
        """Take the walk that begins at these roots meanwhile for this one."""

        def begin(_: object) -> None:
            self._tasks.append(_C._current_graph_task_id())

        handles = [root.register_prehook(begin) for root in roots if root is not None]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


_OPEN: ContextVar[tuple[Walk, Mapping[int, Adder]] | None] = ContextVar("open", default=None)


@contextmanager
def straight(walk: Walk, adders: Mapping[int, Adder]) -> Iterator[None]:
    """Let gradients of leaves, by their ids, be added where they belong while a walk finds them.

    Only where no graph of them is made, since there is nothing that it could be hung on.
    """
    token = _OPEN.set((walk, adders))
    try:
        yield
    finally:
        _OPEN.reset(token)


def made(name: int, make: Made) -> Float[Tensor, "..."] | None:
    """Return the gradient of the tensor that has this id, or None where it went into its sum."""
    walk, adders = _OPEN.get() or (None, {})
    if walk is None or name not in adders or not walk.is_current:
        return make(None)
    adders[name](make)
    return None
