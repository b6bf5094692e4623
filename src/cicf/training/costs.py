"""What a training costs: seconds by phase, and memory at its peak."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from cicf.method import Method

PHASES = ("clustering", "data", "steps", "evaluation", "checkpoints")
"""What a training spends its time on; a method may say what its steps consist of."""
_PROCESS = Path("/proc/self")


class Costs:
    """Adds up what the parts of an interrupted run cost; the peak is that of the greediest part."""

    def __init__(self, method: Method, device: torch.device) -> None:
        self._method, self._device = method, device
        self._here = dict.fromkeys(PHASES, 0.0)
        self._before: Mapping[str, float] = {}
        self._peak: PeakMemory | None = None
        self._highest: int | None = None

    def begin(self) -> None:
        """Count memory from here on."""
        self._peak = PeakMemory(self._device)

    @contextmanager
    def of(self, phase: str) -> Iterator[None]:
        """Count the time that is spent meanwhile for a phase."""
        began = time.perf_counter()
        yield
        self._here[phase] += time.perf_counter() - began

    @property
    def seconds(self) -> dict[str, float]:
        """Return the time by phase, and by the names that the method has for parts of its steps."""
        here = {**self._method.seconds, **self._here}
        return {
            name: here.get(name, 0.0) + self._before.get(name, 0.0)
            for name in {**self._here, **self._before, **here}
        }

    @property
    def peak_memory(self) -> int | None:
        """Return the bytes that training took at most; None where that cannot be known."""
        peaks = [self._highest, None if self._peak is None else self._peak.bytes]
        return max((peak for peak in peaks if peak is not None), default=None)

    def state(self) -> dict[str, Any]:
        """Return what a later part of the run goes on from."""
        return {"seconds": self.seconds, "peak_memory": self.peak_memory}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what an earlier part of the run came to."""
        self._before = state["seconds"]
        self._highest = state.get("peak_memory")


class PeakMemory:
    """Tells how much memory was taken at most since it was made, above what there was then.

    On a CPU it is what the process holds in memory; what worker processes hold is not in it, nor is
    what the process had taken before and could use again.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        is_reset = device.type == "cuda" or _is_peak_reset()
        self._start, self._known = self._now(), None if is_reset else self._highest()

    @property
    def bytes(self) -> int | None:
        """Return the bytes; None where a peak from before hides the one since."""
        highest = self._highest()
        if self._start is None or highest is None or highest == self._known:
            return None
        return max(highest - self._start, 0)

    def _now(self) -> int | None:
        if self._device.type == "cuda":
            return torch.cuda.memory_allocated(self._device)
        # Where only the peak is known, what lies above the one so far is told.
        return _status("VmRSS") or _highest_resident()

    def _highest(self) -> int | None:
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device)
        return _status("VmHWM") or _highest_resident()


def _is_peak_reset() -> bool:
    """Let Linux forget the peak so far; tell whether it did."""
    try:
        (_PROCESS / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _status(name: str) -> int | None:
    try:
        lines = (_PROCESS / "status").read_text().splitlines()
    except OSError:
        return None
    return next((int(each.split()[1]) << 10 for each in lines if each.startswith(name)), None)


def _highest_resident() -> int | None:
    try:
        from resource import RUSAGE_SELF, getrusage
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return getrusage(RUSAGE_SELF).ru_maxrss * unit
