"""A regulariser of the last layer whose weights are learnt (MetaReg)."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


class LinearHead(NamedTuple):
    """Holds the weights of a linear layer, and its bias if it has one."""

    weight: Float[Tensor, "c d"]
    bias: Float[Tensor, " c"] | None = None

    def logits(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Return what the layer puts out for these features."""
        return F.linear(z, self.weight, self.bias)


def weighted_l1(phi: Float[Tensor, "c d"], weight: Float[Tensor, "c d"]) -> Float[Tensor, ""]:
    """Return R_φ(w) = Σ_i φ_i |w_i|."""
    return (phi * weight.abs()).sum()


def unrolled(
    start: LinearHead,
    phi: Float[Tensor, "c d"],
    batch: tuple[Float[Tensor, "n d"], Int[Tensor, " n"]],
    *,
    steps: int,
    lr: float,
) -> LinearHead:
    """Return the head after steps w ← w − α₂ ∇_w [CE(w) + R_φ(w)], as a function of φ.

    The graph of all steps is kept; features and the head at the start are constants in it. The bias
    takes the steps, too, but is not in R_φ.
    """
    z, y = batch
    head = _leaf(start)
    for _ in range(steps):
        loss = F.cross_entropy(head.logits(z.detach()), y) + weighted_l1(phi, head.weight)
        values = [value for value in head if value is not None]
        slopes = torch.autograd.grad(loss, values, create_graph=True)
        moved = [value - lr * slope for value, slope in zip(values, slopes, strict=True)]
        head = LinearHead(*moved)
    return head


def _leaf(head: LinearHead) -> LinearHead:
    return LinearHead(
        *(value.detach().clone().requires_grad_() for value in head if value is not None)
    )
