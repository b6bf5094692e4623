"""What is seen of many runs at once: a line for each that runs, and one for all."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn
from rich.table import Column

from cicf.core.errors import DataError

if TYPE_CHECKING:
    from cicf.bench import Ended, Moved
    from cicf.bench.engine import Event

LEAST = 1e-3
"""The weight of a run whose time is not known."""


def watched(
    events: "Iterable[Event]", seconds: Mapping[str, float], console: Console
) -> "list[Ended]":
    """Show the runs while they go on, bars on a terminal, lines elsewhere; return the failed ones.

    `seconds` are the estimated times of all runs, by their labels.
    """
    from cicf.bench import Ended, Moved

    # Names of a user's data may look like markup, and are none; the time left is never cut.
    columns = (
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)),
        BarColumn(bar_width=12),
        TextColumn("{task.percentage:>3.0f} %", table_column=Column(min_width=5)),
        TimeRemainingColumn(table_column=Column(min_width=7)),
        TextColumn("{task.fields[said]}", markup=False, table_column=Column(min_width=10)),
    )
    failures = []
    with Progress(
        *columns, console=console, disable=not console.is_terminal, expand=True
    ) as progress:
        bars = _Bars(progress, seconds)
        for event in events:
            if isinstance(event, Moved):
                bars.move(event)
            elif isinstance(event, Ended):
                failures += [event] if event.problem is not None else []
                console.print(bars.end(event), soft_wrap=True)
            else:
                bars.wait(len(event.jobs))
    return failures


class _Bars:
    """Holds the bars; the one for all runs weighs each by its estimated time."""

    def __init__(self, progress: Progress, seconds: Mapping[str, float]) -> None:
        self._progress = progress
        self._weights = {label: max(each, LEAST) for label, each in seconds.items()}
        self._shares = dict.fromkeys(self._weights, 0.0)
        self._bars: dict[str, TaskID] = {}
        self._ended = 0
        self._all = progress.add_task("all runs", total=sum(self._weights.values()), said="")

    def move(self, event: "Moved") -> None:
        label = event.job.label
        if label not in self._bars:
            self._bars[label] = self._progress.add_task(label, total=event.total, said="")
        said = "" if event.loss is None else f"loss {event.loss:.3f}"
        self._progress.update(self._bars[label], completed=event.step, said=said)
        self._shares[label] = event.step / event.total if event.total else 0.0
        self._add_up()

    def end(self, event: "Ended") -> str:
        """Take the bar of a run away, and return what it came to."""
        label = event.job.label
        if label in self._bars:
            self._progress.remove_task(self._bars.pop(label))
        self._ended += 1
        self._shares[label] = 1.0
        self._add_up()
        return f"{self._ended} of {len(self._weights)}: {label}: {_came_to(event)}"

    def wait(self, count: int) -> None:
        self._progress.update(self._all, said=f"another process does the last {count}")

    def _add_up(self) -> None:
        done = sum(self._weights[label] * share for label, share in self._shares.items())
        said = f"{self._ended} of {len(self._weights)} have ended"
        self._progress.update(self._all, completed=done, said=said)


def _came_to(event: "Ended") -> str:
    if event.problem is not None:
        return f"failed: {event.problem}"
    try:
        record = event.job.folder.record()
    except DataError as error:
        return str(error)
    return f"{record.accuracy():.1f} %, source validation {record.accuracy('validation'):.1f} %"
