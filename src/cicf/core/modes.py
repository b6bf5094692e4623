"""A look at a module, which leaves it as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Run a module in evaluation mode; afterwards each of its parts is in the mode it was in."""
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        yield
    finally:
        for part in trained:
            part.training = True


def outputs_of(module: nn.Module, batch: Tensor) -> list[tuple[str, object]]:
    """Return what every part puts out for a batch, by name, in the order it is put out.

    A part that runs twice is there twice; the last is the module itself, with an empty name.
    """
    found: list[tuple[str, object]] = []
    handles = [
        part.register_forward_hook(lambda _, __, output, name=name: found.append((name, output)))
        for name, part in module.named_modules()
    ]
    try:
        with evaluating(module), torch.no_grad():
            module(batch)
    finally:
        for handle in handles:
            handle.remove()
    return found
