"""Named random streams of one seed: adding a consumer never changes another's numbers."""

import hashlib

import torch


def stream_seed(seed: int, *names: str | int) -> int:
    """Return a 63-bit seed that depends on every name and on nothing else."""
    words = [f"{'text' if isinstance(name, str) else 'number'} {name}" for name in (seed, *names)]
    digest = hashlib.sha256("\0".join(words).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(seed: int, *names: str | int) -> torch.Generator:
    """Return a fresh CPU generator for the stream of that name."""
    return torch.Generator().manual_seed(stream_seed(seed, *names))
