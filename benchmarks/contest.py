"""Contestants as processes that take turns, and the table of what came of it."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
from contestants import NAMES, OURS
from networks import SETTINGS
from peers import PEERS, is_installed

CUTS = ("input", "Z_0")
ALLOCATORS: dict[str, dict[str, str]] = {
    "own": {},
    "same": {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**33)},
}
"""Environments of the processes: each as it comes, or all with memory that is kept for reuse.

That a step has next to no page faults shows that both work.
"""
Samples = dict[str, list[float]]


@dataclass(frozen=True)
class Place:
    """Is what a contestant is started with."""

    name: str
    setting: str
    cut: str
    inner: int
    outer: int


class Worker:
    """Is a process in which one contestant waits for commands."""

    def __init__(self, place: Place, environment: Mapping[str, str]) -> None:
        self.place = place
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).parent / "worker.py", json.dumps(asdict(place))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**inherited, **environment},
        )

    def ask(self, command: str, *arguments: int) -> dict[str, float]:
        """Return the answer to a command."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        with suppress(BrokenPipeError):
            print(command, *arguments, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        if not line:
            sys.exit(f"{self.place} ended with code {self._process.wait()} at {command!r}")
        answer: dict[str, float] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        self._process.wait()


@contextmanager
def workers(places: Sequence[Place], allocator: str) -> Iterator[dict[str, Worker]]:
    """Start one process for each place; they are ended whatever happens."""
    started = {place.name: Worker(place, ALLOCATORS[allocator]) for place in places}
    try:
        yield started
    finally:
        for worker in started.values():
            worker.close()


def race(entered: Mapping[str, Worker], *, warm_ups: int, rounds: int) -> tuple[Samples, Samples]:
    """Return seconds and page faults of each contestant in each round; all step in every round.

    Each round begins with another contestant, so that none always follows the same one.
    """
    names = list(entered)
    seconds: Samples = {name: [] for name in names}
    faults: Samples = {name: [] for name in names}
    for turn in range(-warm_ups, rounds):
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            answer = entered[name].ask("step")
            if turn >= 0:
                seconds[name].append(answer["seconds"])
                faults[name].append(answer["faults"])
    return seconds, faults


def fastest_peer(seconds: Samples) -> str:
    """Return the peer with the smallest median."""
    return min((n for n in seconds if n in PEERS), key=lambda n: statistics.median(seconds[n]))


def ratios(seconds: Samples, peer: str) -> dict[str, list[float]]:
    """Return quartiles of each contestant's time over the peer's in the same round."""
    return {
        name: quartiles([a / b for a, b in zip(values, seconds[peer], strict=True)])
        for name, values in seconds.items()
    }


def quartiles(values: Sequence[float]) -> list[float]:
    """Return the lower quartile, the median and the upper quartile."""
    if len(values) == 1:
        return [values[0]] * 3
    return statistics.quantiles(values, n=4, method="inclusive")


def taking_part(wanted: Sequence[str]) -> list[str]:
    """Return the contestants that can run here, and say which cannot."""
    for name in wanted:
        if name in PEERS and not is_installed(name):
            print(f"left out: {name} is not installed (pip install 'cicf[peers]')")
    return [name for name in wanted if name not in PEERS or is_installed(name)]


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a parser with what all benchmarks of the step take."""
    found = argparse.ArgumentParser(description=description)
    found.add_argument("--quick", action="store_true", help="fewer rounds and smaller batches")
    found.add_argument("--json", type=Path, help="write the numbers to this file")
    found.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    found.add_argument("--contestants", nargs="+", default=list(NAMES), choices=NAMES)
    return found


def sizes(setting: str, *, is_quick: bool, inner: int | None) -> tuple[int, int]:
    """Return M and M^l: as asked for, or the setting's; a quarter of them for a quick look."""
    known = SETTINGS[setting]
    if inner is not None:
        return inner, max(1, inner * known.outer // known.inner)
    part = 4 if is_quick and setting != "digits" else 1
    return known.inner // part, known.outer // part


def write_json(path: Path | None, content: Mapping[str, object]) -> None:
    """Write numbers together with the machine they are from, if there is a file to write to."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine.describe(), **content}, indent=1) + "\n")


def is_checked(name: str) -> bool:
    """Tell whether the gradient of a contestant is compared."""
    return name in OURS
