"""Sums over the processes of a group, so that N ranks take the step of one."""

from collections import defaultdict
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


class Ranks:
    """Adds up numbers and gradients over the ranks of a process group, or does nothing alone."""

    def __init__(self, count: int = 1, group: dist.ProcessGroup | None = None) -> None:
        self.count, self._group = count, group

    @classmethod
    def of(cls, group: dist.ProcessGroup | None) -> "Ranks":
        """Return the ranks of the group, by default all processes; one where there is no other."""
        if dist.is_available() and dist.is_initialized():
            return cls(dist.get_world_size(group), group)
        return cls()

    def total(self, number: int, device: torch.device) -> int:
        """Return the sum of a whole number over the ranks."""
        if self.count == 1:
            return number
        tensor = torch.tensor(number, device=device)
        dist.all_reduce(tensor, group=self._group)
        return int(tensor)

    def sum(self, values: Sequence[Tensor | None], like: Sequence[Tensor]) -> list[Tensor | None]:
        """Return the sums over the ranks; None only where it is None on every rank."""
        if self.count == 1:
            return list(values)
        present = torch.tensor([float(v is not None) for v in values], device=like[0].device)
        dist.all_reduce(present, group=self._group)
        sums: list[Tensor | None] = [None] * len(values)
        buckets: dict[torch.dtype, list[int]] = defaultdict(list)
        for i in present.nonzero().flatten().tolist():
            buckets[like[i].dtype].append(i)
        for places in buckets.values():
            parts = [torch.zeros_like(like[i]) if values[i] is None else values[i] for i in places]
            flat = torch.cat([part.reshape(-1) for part in parts if part is not None])
            dist.all_reduce(flat, group=self._group)
            pieces = flat.split([like[i].numel() for i in places])
            for i, piece in zip(places, pieces, strict=True):
                sums[i] = piece.view_as(like[i])
        return sums
