"""The mode of a module, for the time of a look at it."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


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
