"""What one step draws."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.core.batch import to_device


class Samples(NamedTuple):
    """Holds a batch: images, labels, domains, and the place of each in its data set."""

    x: Float[Tensor, "m 3 height width"]
    y: Int[Tensor, " m"]
    domain: Int[Tensor, " m"]
    place: Int[Tensor, " m"]


class Draw(NamedTuple):
    """Holds one step's two batches, each of `tasks` consecutive blocks of the same size.

    `inner` is None for a method that asks for none.
    """

    outer: Samples
    inner: Samples | None
    tasks: int = 1


def on_device(draw: Draw, device: torch.device) -> Draw:
    """Return the draw with its tensors on the device."""
    outer, inner = (to_device(part, device) for part in (draw.outer, draw.inner))
    return Draw(outer, inner, draw.tasks)  # type: ignore[arg-type]  # a batch keeps its form
