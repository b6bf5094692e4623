"""A look at a module, which leaves it as it was."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase


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


@contextmanager
def norms_resting(module: nn.Module) -> Iterator[None]:
    """Let normalisation use its running statistics, which then do not move; for a while."""
    norms = [part for part in module.modules() if isinstance(part, _NormBase) and part.training]
    for norm in norms:
        norm.training = False
    try:
        yield
    finally:
        for norm in norms:
            norm.training = True


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
