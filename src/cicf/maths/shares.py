"""A batch's mean loss and its gradient as sums of shares: over pieces, then over ranks."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicf.core import ConfigError, DataError
from cicf.core.batch import Batch
from cicf.core.ranks import Ranks
from cicf.core.replay import RandomSource
from cicf.maths.intervention import Parameters

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


def derive(
    loss: Tensor, wrt: Sequence[Tensor], *, side: Side, piece: Piece, keeps_graph: bool = False
) -> Derivative:
    """Return the piece's share of the mean loss over all ranks, and the gradient of that share."""
    share = _share(loss, side, piece)
    if not (share.requires_grad and wrt):
        return Derivative(share.detach(), [None] * len(wrt), loss.ndim == 1)
    found = torch.autograd.grad(
        share, [*wrt, *side.originals], create_graph=keeps_graph, allow_unused=True
    )
    if any(value is not None for value in found[len(wrt) :]):
        raise ConfigError(
            "the loss uses a parameter by a reference that the step cannot see (kept in a list, a "
            "closure or a cache); reach it through the model, or register it in the module"
        )
    return Derivative(
        share.detach(), [_dense(value) for value in found[: len(wrt)]], loss.ndim == 1
    )


def total(shares: Iterable[Derivative], wrt: Sequence[Tensor], ranks: Ranks) -> Derivative:
    """Return the sum of the shares, over the pieces and then over the ranks."""
    sums: Gradients = [None] * (1 + len(wrt))
    own: set[int] = set()
    is_per_sample = True
    for share in shares:
        is_per_sample &= share.is_per_sample
        _add(sums, [share.loss, *share.gradients], own)
        del share
    assert sums[0] is not None
    loss, *gradients = ranks.sum(sums, like=[sums[0], *wrt])
    assert loss is not None
    return Derivative(loss, gradients, is_per_sample)


def _add(sums: Gradients, values: Gradients, own: set[int]) -> None:
    """Add values to sums, in place where a sum is our own: gradients may be large.

    What autograd returns may be shared among parameters, so that it is never added to.
    """
    for place, old in enumerate(sums):
        value, values[place] = values[place], None
        if old is not None and value is not None and place in own:
            old.add_(value)
        elif old is not None and value is not None:
            sums[place] = old + value
            own.add(place)
        elif old is None:
            sums[place] = value


def plus(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    """Return a + b, None standing for zero."""
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _dense(value: Tensor | None) -> Tensor | None:
    return value.to_dense() if value is not None and value.is_sparse else value


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
