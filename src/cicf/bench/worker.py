"""One run in a process of its own: a job on the input, what happens on the output, line by line.

What goes wrong is told on the error stream, which the engine keeps as the log of the run.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from cicf.config import make_config
from cicf.core import CicfError
from cicf.core.errors import BusyError
from cicf.experiment import events
from cicf.results.record import Record
from cicf.training import Started, Stepped

BUSY = 75
"""Exit code where another process works on the same run."""
REFUSED = 2
"""Exit code where the run cannot be done as it is."""
UNWATCHED = 3
"""Exit code where nobody listens any more."""
INTERRUPTED = 130
"""Exit code where the engine was told to stop."""


def main() -> int:
    """Do the run that the input describes and return the exit code."""
    # Also where whoever started the engine ignores interrupts, as a shell does for background jobs.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    # A user's own networks and methods are found as they are by the command that started this.
    sys.path.append("")
    job = json.load(sys.stdin)
    # Whatever else a run prints belongs in its log, also from C code and from other programs.
    output = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    try:
        _run(job, output)
    except BusyError:
        return BUSY
    except CicfError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    except BrokenPipeError:
        return UNWATCHED
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _run(job: dict[str, object], output: TextIO) -> None:
    config = make_config(job["config"])  # type: ignore[arg-type]  # written by the engine
    for event in events(config, out=Path(str(job["out"])), resumes=True):
        told: dict[str, object] = {}
        if isinstance(event, Started):
            told = {"step": event.step, "total": event.total_steps}
        elif isinstance(event, Stepped):
            told = {"step": event.step, "loss": event.terms["loss"]}
        elif isinstance(event, Record):
            told = {"ended": True}
        if told:
            output.write(json.dumps(told) + "\n")
            output.flush()
