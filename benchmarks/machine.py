"""What a benchmark ran on, so that its numbers can be read later."""

import os
import platform
from importlib import metadata
from pathlib import Path

import torch

LIBRARIES = ("torch", "torchvision", "numpy", "scikit-learn", "higher", "torchopt")


def describe() -> dict[str, object]:
    """Return the machine and the versions; what cannot be found out is None."""
    return {
        "cpu": _first("/proc/cpuinfo", "model name") or platform.processor() or None,
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "threads": torch.get_num_threads(),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "libc": " ".join(platform.libc_ver()) or None,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in LIBRARIES},
    }


def summary() -> str:
    """Return the machine in one line, for the foot of a table."""
    found = describe()
    return f"{found['cpu']}, {found['cores']} cores, {found['libc']}, torch {torch.__version__}"


def _first(path: str, field: str) -> str | None:
    if not Path(path).exists():
        return None
    lines = (line.split(":", 1) for line in Path(path).read_text().splitlines() if ":" in line)
    return next((value.strip() for name, value in lines if name.strip() == field), None)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
