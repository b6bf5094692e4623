"""What one step draws."""

from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor


class Samples(NamedTuple):
    """Holds a batch: images, labels, domains, and the place of each in the training set."""

    x: Float[Tensor, "m 3 height width"]
    y: Int[Tensor, " m"]
    domain: Int[Tensor, " m"]
    place: Int[Tensor, " m"]


class Draw(NamedTuple):
    """Holds one step's two batches; `inner` is None for a method that asks for none."""

    outer: Samples
    inner: Samples | None
