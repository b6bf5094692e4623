"""Batches: any nesting of tuples, lists, dictionaries and registered classes of tensors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils import _pytree as pytree  # torch offers no public name for it

from cicf.core.errors import DataError

Batch = object
"""Any pytree whose leaves are None or tensors that share dimension 0, the samples."""


def batch_size(batch: Batch) -> int:
    """Return the number of samples, the length that all tensors of the batch share."""
    sizes = {}
    for path, leaf in pytree.tree_leaves_with_path(batch):
        where = "batch" + pytree.keystr(path)
        if leaf is None:
            continue
        if not isinstance(leaf, Tensor) or leaf.ndim == 0:
            found = (
                f"a {type(leaf).__name__}" if not isinstance(leaf, Tensor) else "a scalar tensor"
            )
            raise DataError(
                f"{where} is {found}, but every leaf of a batch must be a tensor whose dimension 0 "
                "counts the samples; leave it out of the batch"
            )
        sizes[where] = len(leaf)
    if not sizes:
        raise DataError("the batch has no tensor in it; pass at least the images, as (x, y)")
    if len(set(sizes.values())) > 1:
        found = ", ".join(f"{where} has {size}" for where, size in sizes.items())
        raise DataError(f"the tensors of a batch must share dimension 0, but {found} samples")
    size = next(iter(sizes.values()))
    if size == 0:
        raise DataError("the batch has no samples; draw at least one")
    return size


def chunks(batch: Batch, size: int) -> Iterator[Batch]:
    """Yield the batch in pieces of at most `size` samples, as views in the same order."""
    for start in range(0, batch_size(batch), size):
        yield _map(lambda leaf, a=start: leaf[a : a + size], batch)  # type: ignore[misc]


def take(batch: Batch, places: Tensor) -> Batch:
    """Return the samples at these places."""
    return _map(lambda leaf: leaf[places.to(leaf.device)], batch)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Return the batch with every tensor on the device."""
    return _map(lambda leaf: leaf.to(device, non_blocking=True), batch)


@contextmanager
def guarded(batch: Batch) -> Iterator[Batch]:
    """Give the batch in containers of its own, and refuse a forward that changes its tensors.

    The same samples go through several forwards, which must all see them as they were.
    """
    own = _map(lambda leaf: leaf, batch)
    watched = [
        (path, leaf, leaf._version)
        for path, leaf in pytree.tree_leaves_with_path(own)
        if isinstance(leaf, Tensor) and not leaf.is_inference()
    ]
    yield own
    for path, leaf, version in watched:
        if leaf._version != version:
            raise DataError(
                f"the forward changes batch{pytree.keystr(path)} in place, but the same samples "
                "are needed again; work on a copy, or build the first layer without inplace=True"
            )


def devices(batch: Batch) -> set[torch.device]:
    """Return the devices that the tensors of the batch lie on."""
    return {leaf.device for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)}


def _map(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    return pytree.tree_map_only(Tensor, function, batch)
