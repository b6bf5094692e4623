"""Memory: what there is of it, how a process keeps it, and what running out of it looks like."""

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

SWITCH = "CICF_KEEPS_MEMORY"
"""An environment variable; with 0 the allocator is left as it is."""
_MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -4, -1, -2
"""Numbers of glibc's `mallopt`."""
_MOST = 2**31 - 1
_PAD = 64 << 20
_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory.current"))


@cache
def keep_memory() -> bool:
    """Let the process keep the memory it frees for its next use; tell whether it does.

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
    options = (_MMAP_MAX, 0), (_TRIM_THRESHOLD, _MOST), (_TOP_PAD, _PAD)
    return name == "glibc" and all(mallopt(*option) == 1 for option in options)


def free_bytes(device: torch.device) -> int:
    """Return how much memory could be taken on a device; on a CPU, without swapping."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    if device.type != "cpu" or not Path("/proc/meminfo").exists():
        return _physical() // 2
    lines = Path("/proc/meminfo").read_text().splitlines()
    found = dict(line.split(":", 1) for line in lines)
    available = int(found["MemAvailable"].split()[0]) << 10
    try:
        limit, used = (int(path.read_text()) for path in _LIMITS)
    except (OSError, ValueError):
        return available
    return min(available, max(limit - used, 0))


def is_out_of_memory(error: BaseException) -> bool:
    """Tell whether an error is that of an allocation, on whatever device."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and "not enough memory" in str(error)


def _physical() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
