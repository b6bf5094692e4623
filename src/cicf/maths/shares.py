"""A batch's mean loss and its gradient as sums of shares: over pieces, then over ranks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import GradientEdge

from cicf.core import ConfigError, DataError
from cicf.core.batch import Batch
from cicf.core.ranks import Ranks
from cicf.core.replay import RandomSource
from cicf.maths.intervention import Parameters
from cicf.maths.straight import Adder, Made, Walk, straight
from cicf.maths.unread import blank

Gradients = list[Float[Tensor, "..."] | None]
"""One gradient per parameter; None where the loss does not reach it, as in autograd."""


class Derivative(NamedTuple):
    """Holds a loss, its gradients, and whether it came as one value per sample."""

    loss: Float[Tensor, ""]
    gradients: Gradients
    is_per_sample: bool


Loss = Callable[[Parameters, Batch | None, Callable[[Tensor], Derivative]], Derivative]
"""parameters, batch, then → then(loss), a loss of one value per sample [m] or one for the batch.

`then` is called while the parameters are in place, because checkpoints recompute the forward when
they are differentiated; without a batch nothing is evaluated, and `then` gets an empty tensor.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """Is a piece of a batch; only curved pieces enter pass 3, each sample with its weight there."""

    batch: Batch
    size: int
    is_curved: bool = True
    weights: Float[Tensor, " m"] | None = None


@dataclass(frozen=True, slots=True)
class Side:
    """Is one of the two batches of a step: its loss, its pieces, its samples over all ranks.

    `option` names what needs one value per sample, such as "chunk=32"; it is empty if nothing does.
    `originals` are tensors that the loss must not depend on, since others stand for them.
    """

    loss: Loss
    pieces: Sequence[Piece]
    total: int
    option: str = ""
    originals: Sequence[Tensor] = ()


@dataclass(frozen=True, slots=True)
class Setting:
    """Is what the passes share: the randomness, the ranks, whether pass 1 keeps its graphs.

    `inspect` is shown the graph of g† before it is differentiated. To `seconds` each pass adds the
    time that it took.
    """

    random: RandomSource
    ranks: Ranks
    keeps_graphs: bool
    inspect: Callable[[Gradients], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the time of what is done meanwhile, under a name."""
        began = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began


class Sums:
    """Are gradients with respect to parameters that grow by those of each piece.

    Each is added as soon as autograd finds it and is let go of then, so that those of a piece are
    never held all at once; those of layers' weights are added as they are made.
    """

    def __init__(self, wrt: Sequence[Tensor], *, num_pieces: int) -> None:
        self.wrt, self._is_single = wrt, num_pieces == 1
        self.gradients: Gradients = [None] * len(wrt)

    def add(self, values: Sequence[Tensor | None]) -> None:
        """Add a gradient for each parameter, or none."""
        for place, value in enumerate(values):
            if value is not None:
                self._add(value, place)

    def add_gradient(
        self,
        of: Sequence[Tensor] | Sequence[GradientEdge],
        directions: Sequence[Tensor] | None = None,
        *,
        others: Sequence[Tensor] = (),
    ) -> bool:
        """Add the gradient of tensors; tell whether they depend on others, which they must not."""
        walk = Walk()
        roots = [each.grad_fn if isinstance(each, Tensor) else each.node for each in of]
        added: set[int] = set()
        watched = nullcontext() if self._is_single else self._watching(walk, added)
        with walk.begun_at(roots), straight(walk, self._adders()), watched:
            found = torch.autograd.grad(of, [*self.wrt, *others], directions, allow_unused=True)
        values = found[: len(self.wrt)]
        self.add([None if place in added else each for place, each in enumerate(values)])
        return any(value is not None for value in found[len(self.wrt) :])

    def _adders(self) -> dict[int, Adder]:
        """Return what lets operators that can do so add to the sums themselves."""
        return {id(leaf): partial(self._make, place) for place, leaf in enumerate(self.wrt)}

    def _make(self, place: int, make: Made) -> None:
        self.gradients[place] = make(self.gradients[place])

    @contextmanager
    def _watching(self, walk: Walk, added: set[int]) -> Iterator[None]:
        """Add what a walk finds, leave a blank in its place, and tell which were added."""

        def add(value: Tensor | None, place: int) -> Tensor | None:
            if value is None or value.is_sparse or not walk.is_current:
                return value
            self._add(value, place)
            added.add(place)
            return blank(value)

        leaves = enumerate(self.wrt)
        handles = [leaf.register_hook(partial(add, place=place)) for place, leaf in leaves]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _add(self, value: Tensor, place: int) -> None:
        """Add a gradient to the sum of its parameter."""
        old, dense = self.gradients[place], _dense(value.detach())
        if old is not None:
            old.add_(dense)
        else:
            # A copy, since what autograd returns may be shared among parameters.
            self.gradients[place] = dense if self._is_single else dense.clone()


def derive(loss: Tensor, wrt: Sequence[Tensor], *, side: Side, piece: Piece) -> Derivative:
    """Return the piece's share of the mean loss over all ranks, and its gradient with a graph."""
    share = _share(loss, side, piece)
    found: Gradients = [None] * len(wrt)
    if share.requires_grad:
        slopes = torch.autograd.grad(share, wrt, create_graph=True, allow_unused=True)
        found = [value if value is None else _dense(value) for value in slopes]
    return Derivative(share.detach(), found, loss.ndim == 1)


def add_share(loss: Tensor, sums: Sums, *, side: Side, piece: Piece) -> Derivative:
    """Return the piece's share of the mean loss over all ranks; its gradient goes into the sums."""
    share = _share(loss, side, piece)
    if share.requires_grad and sums.wrt and sums.add_gradient([share], others=side.originals):
        raise ConfigError(
            "the loss uses a parameter by a reference that the step cannot see (kept in a list, a "
            "closure or a cache); reach it through the model, or register it in the module"
        )
    return Derivative(share.detach(), [], loss.ndim == 1)


def total(shares: Iterable[Derivative], sums: Sums, ranks: Ranks) -> Derivative:
    """Return the shares' loss and the sums that they went into, over all ranks."""
    losses, are_per_sample = zip(
        *((share.loss, share.is_per_sample) for share in shares), strict=True
    )
    local = sum(losses[1:], start=losses[0])
    loss, *gradients = ranks.sum([local, *sums.gradients], like=[local, *sums.wrt])
    assert loss is not None
    return Derivative(loss, gradients, all(are_per_sample))


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return a + b, None standing for zero."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _dense(value: Tensor) -> Tensor:
    return value.to_dense() if value.is_sparse else value


def _share(loss: Tensor, side: Side, piece: Piece) -> Float[Tensor, ""]:
    if not isinstance(loss, Tensor):
        raise DataError(f"the loss is a {type(loss).__name__}; return a tensor")
    if loss.shape == (piece.size,):
        return loss.sum() / side.total
    if loss.ndim != 0:
        raise DataError(
            f"the loss has shape {list(loss.shape)} for {piece.size} samples; return one value per "
            f"sample, shape [{piece.size}], or one for the whole batch, shape []"
        )
    if side.option:
        raise ConfigError(
            f"{side.option} needs a loss with one value per sample, but this one returns a single "
            "value for the batch; return shape [m] (reduction='none'), or leave the option out"
        )
    return loss * (piece.size / side.total)
