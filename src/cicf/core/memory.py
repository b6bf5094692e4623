"""Memory: what there is of it, how a process keeps it, and what running out of it looks like."""

import ctypes
import os
import sys
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import torch

SWITCH = "CICF_KEEPS_MEMORY"
"""An environment variable; with 0 the allocator is left as it is."""
_MMAP_MAX, _MMAP_THRESHOLD, _TRIM_THRESHOLD, _TOP_PAD = -4, -3, -1, -2
"""Numbers of glibc's `mallopt`."""
_MOST = 2**31 - 1
_PAD, _LEAN_PAD = 64 << 20, 1 << 20
"""By how much more than is asked for the heap grows."""
_MAPS, _LARGE = 65536, 4 << 20
"""How many blocks glibc maps by default, and from which size on a lean process lets it do so."""
_PROC, _CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_ERRORS = (
    "can't allocate memory",  # torch on a CPU
    "not enough memory",  # the same on Windows
    "out of memory",  # Apple's devices, and CUDA where it is not torch that allocates
    "std::bad_alloc",
    "CUBLAS_STATUS_ALLOC_FAILED",
)


@lru_cache(maxsize=1)
def keep_memory(*, is_lean: bool = False) -> bool:
    """Let the process keep the memory it frees for its next use; tell whether it does.

    If it is to be lean, large blocks that find no room are given back after use: kept, they get cut
    up by smaller ones.
    By default glibc gives large blocks back to the system at once, which then fills new ones with
    zeros page by page: on a CPU a third of the time of a step. Other systems are left alone, as is
    an allocator that the environment has settings for.
    """
    is_set = any(name.startswith("MALLOC_") or name == "GLIBC_TUNABLES" for name in os.environ)
    if is_set or os.environ.get(SWITCH) == "0":
        return False
    try:
        name, _ = os.confstr("CS_GNU_LIBC_VERSION").split()  # type: ignore[union-attr]
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, ValueError):
        return False
    maps = ((_MMAP_MAX, _MAPS), (_MMAP_THRESHOLD, _LARGE)) if is_lean else ((_MMAP_MAX, 0),)
    options = (*maps, (_TRIM_THRESHOLD, _MOST), (_TOP_PAD, _LEAN_PAD if is_lean else _PAD))
    return name == "glibc" and all(mallopt(*option) == 1 for option in options)


def free_bytes(device: torch.device) -> int:
    """Return how much memory could be taken on a device; on a CPU, without swapping."""
    if device.type == "cuda":
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + kept
    if device.type != "cpu":
        return _physical() // 2
    try:
        lines = (_PROC / "meminfo").read_text().splitlines()
        (found,) = (line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, ValueError):
        return _physical() // 2
    return min(int(found) << 10, *_rooms())


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is that of an allocation, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(part in str(error) for part in _ERRORS)


class _Names(NamedTuple):
    """Says what a version of Linux's control groups calls its files, and the cache in `stat`."""

    limit: str
    used: str
    cache: str


_FIRST = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_SECOND = _Names("memory.max", "memory.current", "inactive_file")


def _rooms() -> list[int]:
    """Return what each limit on this process leaves: its control groups', and those around them."""
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        return [sys.maxsize]
    found = [sys.maxsize]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        names, root = (_FIRST, _CGROUPS / "memory") if controllers else (_SECOND, _CGROUPS)
        folder = root / path.lstrip("/")
        inside = [each for each in (folder, *folder.parents) if each.is_relative_to(root)]
        found += [_room(each, names) for each in inside]
    return found


def _room(folder: Path, names: _Names) -> int:
    try:
        limit, used = (int((folder / name).read_text()) for name in names[:2])
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
        # Files that were read count as used, but make room for whoever asks.
        return max(limit - used + int(stat.get(names.cache, 0)), 0)
    except (OSError, ValueError):
        return sys.maxsize


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
