"""Jobs in processes of this machine, a few at a time."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from cicf.bench.grid import Job
from cicf.bench.worker import BUSY
from cicf.core.files import is_locked

PAUSE = 2.0
"""Seconds between looks at runs that other processes work on."""
GRACE = 20.0
"""Seconds that a stopped run gets to leave its folder in order."""


@dataclass(frozen=True, slots=True)
class Moved:
    """Says how far a job is."""

    job: Job
    step: int
    total: int | None
    loss: float | None


@dataclass(frozen=True, slots=True)
class Ended:
    """Says that a job has ended; with what went wrong, or without."""

    job: Job
    problem: str | None
    log: Path


@dataclass(frozen=True, slots=True)
class Waiting:
    """Says that all jobs that are left are worked on by other processes."""

    jobs: tuple[Job, ...]


Event = Moved | Ended | Waiting
_WORKER = "import sys; from cicf.bench.worker import main; sys.exit(main())"


@dataclass(slots=True)
class _Running:
    job: Job
    process: subprocess.Popen[str]
    log: Path
    start: int
    """How long the log was before, from attempts that are over."""
    total: int | None = None


def execute(jobs: Sequence[Job], *, num_jobs: int, logs: Path) -> Generator[Event]:
    """Run every job that has not ended, `num_jobs` at a time, and tell of them until all have.

    A job that fails does not stop the others. One that another process works on is waited for.
    When the generator is closed, or interrupted, running jobs are stopped; they go on from their
    newest checkpoint another time.
    """
    logs.mkdir(parents=True, exist_ok=True)
    left = deque(job for job in jobs if not job.folder.is_finished)
    running: dict[int, _Running] = {}
    lines: Queue[tuple[int, str | None]] = Queue()
    threads = _threads(num_jobs)
    number = 0
    try:
        while left or running:
            while len(running) < num_jobs and (job := _next(left)) is not None:
                number += 1
                running[number] = _started(job, logs, lines, number, threads)
            if running:
                yield from _told(running, lines, left)
                continue
            # Only what others work on is left.
            yield from _elsewhere(left, logs)
    finally:
        _stop(running)


def _threads(num_jobs: int) -> int:
    """Return an equal share of the cores for each run, or fewer if OMP_NUM_THREADS says so."""
    share = max(1, (os.cpu_count() or 1) // num_jobs)
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return min(share, int(asked)) if asked.isdecimal() and int(asked) > 0 else share


def _next(left: deque[Job]) -> Job | None:
    """Take the first job that nobody works on; None if there is none."""
    for _ in range(len(left)):
        job = left.popleft()
        if not job.folder.is_finished and not is_locked(job.folder.path):
            return job
        left.append(job)
    return None


def _elsewhere(left: deque[Job], logs: Path) -> Iterator[Event]:
    for job in [each for each in left if each.folder.is_finished]:
        left.remove(job)
        yield Ended(job, None, _log(job, logs))
    if left and all(is_locked(job.folder.path) for job in left):
        yield Waiting(tuple(left))
        time.sleep(PAUSE)


def _started(
    job: Job, logs: Path, lines: Queue[tuple[int, str | None]], number: int, threads: int
) -> _Running:
    log = _log(job, logs)
    with log.open("a", encoding="utf-8") as errors:
        start = errors.tell()
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
            # An interrupt at the keyboard is for this process, which then stops its jobs.
            start_new_session=True,
        )
    assert process.stdin is not None
    with process.stdin as stream:
        config = json.loads(job.config.model_dump_json())
        # Whoever made the jobs has looked at the images, once for all of them.
        config["machine"]["checks_images"] = False
        stream.write(json.dumps({"config": config, "out": str(job.folder.path)}))
    threading.Thread(target=_listen, args=(process, lines, number), daemon=True).start()
    return _Running(job, process, log, start)


def _listen(
    process: "subprocess.Popen[str]", lines: Queue[tuple[int, str | None]], number: int
) -> None:
    assert process.stdout is not None
    try:
        with process.stdout as stream:
            for line in stream:
                lines.put((number, line))
    finally:
        process.wait()
        lines.put((number, None))


def _told(
    running: dict[int, _Running], lines: Queue[tuple[int, str | None]], left: deque[Job]
) -> Iterator[Event]:
    """Yield what the next line of a running job says, or nothing after a while."""
    try:
        number, line = lines.get(timeout=PAUSE)
    except Empty:
        return
    here = running[number]
    if line is not None:
        said = _parsed(line)
        if "step" in said:
            here.total = said.get("total", here.total)
            yield Moved(here.job, said["step"], here.total, said.get("loss"))
        return
    del running[number]
    code = here.process.returncode
    if code == BUSY:
        left.append(here.job)
        return
    if code == 0:
        _remove_empty(here.log)
    yield Ended(here.job, None if code == 0 else _problem(here, code), here.log)


def _parsed(line: str) -> dict[str, Any]:
    """Return what a line says; nothing if it was cut off in the midst."""
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _remove_empty(log: Path) -> None:
    # Another engine on the same folder may have removed it already.
    with suppress(FileNotFoundError):
        if log.stat().st_size == 0:
            log.unlink()


def _problem(here: _Running, code: int) -> str:
    """Return the last line that a failed job left, or what ended it without one."""
    if code < 0:
        return f"it was killed by signal {-code}; was there too little memory?"
    text = here.log.read_bytes()[here.start :].decode(errors="replace") if here.log.exists() else ""
    said = [line for line in text.splitlines() if line.strip()]
    return said[-1].strip() if said else f"ended with exit code {code} and no word"


def _stop(running: dict[int, _Running]) -> None:
    for each in running.values():
        each.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + GRACE
    for each in running.values():
        try:
            each.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            each.process.kill()
            each.process.wait()


def _log(job: Job, logs: Path) -> Path:
    return logs / f"{job.folder.path.name}.log"
