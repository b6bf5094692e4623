"""Images as 3x3 tiles: orders that are far from each other, and images in such an order."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

GRID = 3
"""Tiles in a row and in a column."""


def far_permutations(count: int, *, size: int = GRID * GRID) -> Int[Tensor, "count size"]:
    """Return permutations of 0 … size − 1 that differ in many places, the identity first.

    Greedily: each is, of all there are, the one whose smallest Hamming distance to those before it
    is the largest; among equals the one with the largest sum of distances, then the first in
    lexicographic order. Nothing is random.
    """
    every = all_permutations(size)
    chosen = [0]
    nearest = torch.full((len(every),), size)
    total = torch.zeros(len(every), dtype=torch.int64)
    while len(chosen) < count:
        distance = (every != every[chosen[-1]]).sum(1)
        nearest, total = torch.minimum(nearest, distance), total + distance
        # A sum of distances is at most size · count, so that the smallest distance decides.
        chosen.append(int((nearest * (size * count + 1) + total).argmax()))
    return every[chosen].to(torch.int64)


def all_permutations(size: int) -> Int[Tensor, "n size"]:
    """Return all permutations of 0 … size − 1 in lexicographic order."""
    every = torch.zeros(1, 0, dtype=torch.int8)
    for length in range(1, size + 1):
        first = torch.arange(length, dtype=torch.int8).repeat_interleave(len(every))[:, None]
        rest = every.repeat(length, 1)
        every = torch.cat([first, rest + (rest >= first).to(torch.int8)], 1)
    return every


def shuffled(
    x: Float[Tensor, "m c h w"], order: Int[Tensor, "m tiles"], *, grid: int = GRID
) -> Float[Tensor, "m c h w"]:
    """Return the images with tile order[i, t] at place t, places counted row by row.

    Tiles have ⌊h / 3⌋ x ⌊w / 3⌋ pixels and lie in the middle; the one or two rows and columns that
    are left over when a side cannot be divided by 3 stay where they are, at the edges.
    """
    count, channels, height, width = x.shape
    tall, wide = height // grid, width // grid
    top, left = (height - grid * tall) // 2, (width - grid * wide) // 2
    rows, columns = slice(top, top + grid * tall), slice(left, left + grid * wide)
    cut = x[:, :, rows, columns].reshape(count, channels, grid, tall, grid, wide)
    tiles = cut.permute(0, 2, 4, 1, 3, 5).flatten(1, 2)
    moved = tiles[torch.arange(count, device=x.device)[:, None], order]
    back = moved.unflatten(1, (grid, grid)).permute(0, 3, 1, 4, 2, 5)
    found = x.clone()
    found[:, :, rows, columns] = back.reshape(count, channels, grid * tall, grid * wide)
    return found
