"""Gradients of many images by their inner products, exactly, whatever the number of parameters.

All that Eq. 12 to 21 need of N gradients of p parameters are lengths and angles, and these are in
the N x N inner products: no gradient has to be kept, and nothing has to be projected at random.
"""

from collections.abc import Callable, Generator

import torch
from jaxtyping import Float
from torch import Tensor

Rows = Callable[[int, int], Float[Tensor, "_ p"]]
"""start, stop → the gradients of the images from `start` to before `stop`, one a row."""


def gram(
    rows: Rows, n: int, *, held: int, chunk: int
) -> Generator[int, None, Float[Tensor, "n n"]]:
    """Return G_ij = ⟨g_i, g_j⟩, and yield how many gradients were computed so far.

    At most `held` gradients are in memory, and `chunk` more; those that do not fit are computed
    again, `gradients_to_compute` in all.
    """
    found = torch.zeros(n, n, dtype=torch.float64)
    done = 0
    for start in range(0, n, held):
        stop = min(start + held, n)
        kept: list[Tensor] = []
        for low in range(start, stop, chunk):
            high = min(low + chunk, stop)
            kept.append(rows(low, high))
            done += high - low
            yield done
        block = torch.cat(kept)
        kept.clear()
        found[start:stop, start:stop] = (block @ block.T).double().cpu()
        for low in range(stop, n, chunk):
            high = min(low + chunk, n)
            products = (block @ rows(low, high).T).double().cpu()
            found[start:stop, low:high], found[low:high, start:stop] = products, products.T
            done += high - low
            yield done
    return found


def gradients_to_compute(n: int, held: int) -> int:
    """Return how many gradients `gram` computes when it keeps `held` at a time."""
    return sum(n - start for start in range(0, n, held))


def coordinates(gram: Float[Tensor, "n n"]) -> Float[Tensor, "n n"]:
    """Return one row per gradient with the inner products given: g in an orthonormal basis.

    Every mean, variance and distance of the rows is that of the gradients themselves.
    """
    values, vectors = torch.linalg.eigh(gram)
    # A rounding error below zero is no direction.
    rows: Tensor = vectors * values.clamp(min=0).sqrt()
    return rows
