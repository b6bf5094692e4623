"""One contestant in a process of its own: takes a step, or measures one, when it is told to.

Gets a `Place` as JSON in its argument, then a command a line, and answers each by a line of JSON.
"""

import ctypes
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import gradients
from contestants import OURS, options_of, step_of
from networks import SETTINGS
from peers import first_order, unrolled

Answer = dict[str, float]
SMALL = 8
"""Samples of the step before those whose memory is measured."""


class Contestant:
    """Is a network, two batches, and the step that is taken on them."""

    def __init__(self, name: str, setting: str, cut: str, inner: int, outer: int) -> None:
        self._setting, self._cut = SETTINGS[setting], cut
        self._is_first_order = name in OURS and options_of(name, setting).get("order") == 1
        self._step = step_of(name, setting)
        if name not in OURS:
            assert "cicf" not in sys.modules, "a peer runs as its users have it, without cicf"
        self._model = self._setting.network()
        self._batches = [
            self._setting.batch(size, seed=seed) for seed, size in enumerate((inner, outer))
        ]

    def step(self) -> Answer:
        """Return the seconds and the page faults of one step."""
        faults, start = _usage().ru_minflt, time.perf_counter()
        self._take(len(self._batches[0][1]))
        seconds = time.perf_counter() - start
        return {"seconds": seconds, "faults": _usage().ru_minflt - faults}

    def check(self, seeds: int) -> Answer:
        """Return the errors of the gradient, and whether they are small."""
        reference = first_order if self._is_first_order else unrolled
        found = gradients.errors_of(self._step, reference, self._setting, self._cut, seeds)
        # Or processes that wait would hold all that double precision took.
        gc.collect()
        _give_back()
        return {**asdict(found), "are_small": found.are_small}

    def peak(self, steps: int) -> Answer:
        """Return by how many bytes some steps raise the memory of this process at its peak.

        A small step comes first, and what it leaves unused is given back to the system.
        """
        self._take(SMALL)
        self._model.zero_grad(set_to_none=True)
        gc.collect()
        _give_back()
        is_reset = _reset_peak()
        before = _resident() if is_reset else _usage().ru_maxrss * 1024
        for _ in range(steps):
            self._take(len(self._batches[0][1]))
        after = _highest() if is_reset else _usage().ru_maxrss * 1024
        parameters = sum(p.numel() * p.element_size() for p in self._model.parameters())
        return {"bytes": after - before, "parameters": parameters}

    def _take(self, most: int) -> None:
        inner, outer = ((x[:most], y[:most]) for x, y in self._batches)
        self._model.zero_grad(set_to_none=True)
        self._step(self._model, self._setting.h(self._cut), self._setting.alpha, inner, outer)


def _usage() -> resource.struct_rusage:
    return resource.getrusage(resource.RUSAGE_SELF)


def _give_back() -> None:
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _reset_peak() -> bool:
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _highest() -> int:
    return _status("VmHWM")


def _resident() -> int:
    return _status("VmRSS")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(1024 * int(line.split()[1]) for line in lines if line.startswith(field))


def main() -> None:
    """Answer commands until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print must not get between the answers.
    os.dup2(2, 1)
    contestant = Contestant(**json.loads(sys.argv[1]))
    commands: dict[str, Callable[..., Answer]] = {
        "step": contestant.step,
        "check": contestant.check,
        "peak": contestant.peak,
    }
    for line in sys.stdin:
        name, *arguments = line.split()
        answer = commands[name](*map(int, arguments))
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
