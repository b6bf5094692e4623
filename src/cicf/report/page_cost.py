"""What runs took: seconds by phase, as bars and as numbers."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from cicf.report.grid import NOTHING, Grid, Item, Line
from cicf.results.record import Record
from cicf.training.costs import PHASES

_NOTE = "seconds, mean over the runs of a row; they depend on the machine and its load"


class Phase(NamedTuple):
    """Is the time that a phase took, as a part of a bar."""

    name: str
    seconds: float
    start: float
    width: float


class Cost(NamedTuple):
    """Holds what the runs of a row took, in the mean."""

    label: str
    phases: tuple[Phase, ...]
    total: float
    step: float | None
    """Seconds of a training step; None where no step was taken."""
    memory: float | None
    """Bytes at the peak, in the mean of the runs that know it."""
    parts: tuple[tuple[str, float], ...]
    """What the steps consist of, where the method says so."""
    n: int
    """Runs."""


def costs(rows: Mapping[str, Sequence[Record]]) -> tuple[Cost, ...]:
    """Return seconds by phase, with bars in percent of the longest row."""
    names = [name for name in PHASES if any(name in each.seconds for each in _all(rows))]
    longest = max((fmean(map(total_seconds, each)) for each in rows.values()), default=0.0)
    return tuple(
        Cost(
            label,
            _phases([(name, _mean(name, records)) for name in names], longest),
            fmean(map(total_seconds, records)),
            _step(records),
            _memory(records),
            tuple((name, _mean(name, records)) for name in _parts(records)),
            len(records),
        )
        for label, records in rows.items()
    )


def total_seconds(record: Record) -> float:
    """Return the seconds of all phases; what a method says of its steps is in them already."""
    return float(sum(record.seconds.get(name, 0.0) for name in PHASES))


def cost_grid(found: Sequence[Cost]) -> Grid:
    """Return the same as numbers; what no row knows has no column."""
    columns: list[tuple[str, list[float | None]]] = [("total in s", [c.total for c in found])]
    for place, phase in enumerate(found[0].phases):
        columns.append((phase.name, [each.phases[place].seconds for each in found]))
    parts = dict.fromkeys(name for each in found for name, _ in each.parts)
    columns += [
        *((f"of steps: {name}", [dict(c.parts).get(name) for c in found]) for name in parts),
        ("step in ms", [None if c.step is None else 1000 * c.step for c in found]),
        ("peak in MB", [None if c.memory is None else c.memory / 1e6 for c in found]),
        ("runs", [float(c.n) for c in found]),
    ]
    known = [(name, values) for name, values in columns if any(v is not None for v in values)]
    lines = tuple(
        Line("ours", each.label, tuple(_number(values[row], name) for name, values in known))
        for row, each in enumerate(found)
    )
    head = ("method", *(name for name, _ in known))
    return Grid("Seconds", head, lines, (_NOTE,))


def _number(value: float | None, column: str) -> Item:
    digits = 0 if column == "runs" else 1
    return Item(NOTHING) if value is None else Item(f"{value:.{digits}f}", value=value)


def _all(rows: Mapping[str, Sequence[Record]]) -> list[Record]:
    return [record for records in rows.values() for record in records]


def _mean(name: str, records: Sequence[Record]) -> float:
    return fmean(record.seconds.get(name, 0.0) for record in records)


def _parts(records: Sequence[Record]) -> list[str]:
    names = dict.fromkeys(name for record in records for name in record.seconds)
    return [name for name in names if name not in PHASES]


def _memory(records: Sequence[Record]) -> float | None:
    known = [record.peak_memory for record in records if record.peak_memory is not None]
    return fmean(known) if known else None


def _phases(seconds: Iterable[tuple[str, float]], longest: float) -> tuple[Phase, ...]:
    found: list[Phase] = []
    start = 0.0
    for name, value in seconds:
        width = 100 * value / longest if longest else 0.0
        found.append(Phase(name, value, round(start, 3), round(width, 3)))
        start += width
    return tuple(found)


def _step(records: Sequence[Record]) -> float | None:
    steps = sum(record.last.epoch * record.setup.steps_per_epoch for record in records)
    seconds = sum(record.seconds.get("steps", 0.0) for record in records)
    return seconds / steps if steps and seconds else None
