"""Inner products of the per-sample gradients of a network's part f, in pieces that fit."""

import time
from collections.abc import Generator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import functional_call

from cicf.core import ConfigError
from cicf.core.batch import to_device
from cicf.core.draw import Samples
from cicf.core.memory import free_bytes, is_out_of_memory
from cicf.core.modes import evaluating
from cicf.data.loader import Evaluated
from cicf.intervention.objective import Objective
from cicf.maths.gram import gradients_to_compute, gram
from cicf.maths.intervention import Labelled, Parameters, instance_gradients
from cicf.method import cross_entropy
from cicf.models import SplitModel

MOST_BYTES = 4 << 30
"""Of gradients that are held in memory; and no more than a quarter of what is free."""
CHUNK, CHUNK_BYTES = 64, 512 << 20
"""Images whose gradients are computed at once, at most; and what these take, at most."""


@dataclass(frozen=True, slots=True)
class Working:
    """Says how far a part of the work is."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Estimated:
    """Says how long the gradients will take, by the first of them."""

    seconds: float
    gradients: int
    """Those that do not fit into memory count as often as they are computed."""
    parameters: int


def theta_of(model: SplitModel) -> Parameters:
    """Return the trainable parameters of f, after Z, by their names in the model."""
    theta, _ = Objective(model, cross_entropy, "frozen").split(model.h)
    return {name.removeprefix("model."): value.detach() for name, value in theta.items()}


def gradient_products(
    model: SplitModel, images: Evaluated, *, device: torch.device, most_bytes: int = MOST_BYTES
) -> Generator[Working | Estimated, None, Float[Tensor, "n n"]]:
    """Return ⟨g_i, g_j⟩ of all images, un-augmented, with the network in evaluation mode."""
    theta = theta_of(model)
    parameters = sum(value.numel() for value in theta.values())
    row = parameters * next(iter(theta.values())).element_size()
    held = min(max(1, min(most_bytes, free_bytes(device) // 4) // row), len(images))
    chunk = min(CHUNK, max(1, CHUNK_BYTES // row), held)

    def logits(theta: Parameters, x: Float[Tensor, "m ..."]) -> Float[Tensor, "m c"]:
        found: Tensor = functional_call(model, theta, (x,))
        return found

    def rows(start: int, stop: int) -> Float[Tensor, "_ p"]:
        batch = to_device(images.batch(torch.arange(start, stop)), device)
        assert isinstance(batch, Samples)
        # Without a graph to the parameters of h, which are no part of θ.
        try:
            with torch.no_grad():
                found = instance_gradients(logits, theta, Labelled(batch.x, batch.y))
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise ConfigError(
                f"torch cannot take the network's gradients image by image ({_first(error)}); use "
                "one without branches on values and without changes in place of what it holds"
            ) from error
        return torch.cat([value.flatten(1) for value in found.values()], dim=1)

    total, began = gradients_to_compute(len(images), held), time.perf_counter()
    work = gram(rows, len(images), held=held, chunk=chunk)
    is_first = True
    with evaluating(model):
        while True:
            try:
                done = next(work)
            except StopIteration as ended:
                products: Tensor = ended.value
                return products
            if is_first:
                seconds = (time.perf_counter() - began) / done * total
                yield Estimated(seconds, total, parameters)
                is_first = False
            yield Working("gradients", done, total)


def _first(error: RuntimeError) -> str:
    """Return the first sentence of an error, whose others may fill a page."""
    return str(error).split("\n")[0].split(". ")[0]
