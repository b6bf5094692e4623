"""What rows of runs took: seconds by phase as bars, and the same as numbers."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from cicf.report.cost import PASSES, REST, Cost, cost_tables
from cicf.report.grid import NOTHING, Grid, Item, Line
from cicf.results.record import Record
from cicf.results.runs import FoundRun
from cicf.training.costs import PHASES

_STEPS = ("steps", *PASSES, REST)
"""Phases in which the network learns."""
_SERIES = ("clustering", "data", "steps", "evaluation", "checkpoints")
"""Phases that have a colour of their own; what steps consist of are shades of theirs."""


class Phase(NamedTuple):
    """Is the mean time of a phase, as a part of a bar in percent of the longest."""

    name: str
    seconds: float
    start: float
    width: float
    series: int
    """Which colour it has."""
    shade: int = 0
    """Which shade of it, from the fullest."""


class RowCost(NamedTuple):
    """Holds what the runs of a row took, in the mean; None where it is not known."""

    label: str
    phases: tuple[Phase, ...]
    total: float
    step: float | None
    """Seconds of a training step."""
    clustering_percent: float | None
    times_erm: float | None
    memory: float | None
    """Bytes at the peak."""
    n: int
    """Runs."""


class Costs(NamedTuple):
    """Holds the costs of a table's rows, with what must be said beside them."""

    rows: tuple[RowCost, ...]
    notes: tuple[str, ...]


def costs(rows: Mapping[str, Sequence[FoundRun]]) -> Costs:
    """Return what rows took; all runs are of the same data, protocol and network."""
    tables = cost_tables([run for runs in rows.values() for run in runs])
    by_path = {cost.path: cost for table in tables for cost in table.costs}
    names = list(dict.fromkeys(name for table in tables for name in table.phases))
    found = {label: [by_path[run.path] for run in runs] for label, runs in rows.items()}
    # Runs that took no time have no bars.
    longest = max(fmean(cost.total for cost in each) for each in found.values()) or 1.0
    notes = dict.fromkeys(note for table in tables for note in table.footnotes)
    return Costs(
        tuple(_row(label, each, names, longest) for label, each in found.items()),
        ("seconds and memory are means over the runs of a row", *notes),
    )


def total_seconds(record: Record) -> float:
    """Return the seconds of all phases; what a method says of its steps is in them already."""
    return float(sum(record.seconds.get(name, 0.0) for name in PHASES))


def cost_grid(found: Costs) -> Grid:
    """Return the same as numbers; what no row knows has no column."""
    rows = found.rows
    columns: list[tuple[str, list[float | None]]] = [("total in s", [r.total for r in rows])]
    for place, phase in enumerate(rows[0].phases):
        # What took no time was not done.
        columns.append((phase.name, [row.phases[place].seconds or None for row in rows]))
    columns += [
        ("step in ms", [None if r.step is None else 1000 * r.step for r in rows]),
        ("clustering %", [r.clustering_percent for r in rows]),
        ("× ERM", [r.times_erm for r in rows]),
        ("peak in MB", [None if r.memory is None else r.memory / 1e6 for r in rows]),
        ("runs", [float(r.n) for r in rows]),
    ]
    known = [(name, values) for name, values in columns if any(v is not None for v in values)]
    lines = tuple(
        Line("ours", row.label, tuple(_number(values[place], name) for name, values in known))
        for place, row in enumerate(rows)
    )
    return Grid("Seconds", ("method", *(name for name, _ in known)), lines, found.notes)


def _row(label: str, costs: Sequence[Cost], names: Sequence[str], longest: float) -> RowCost:
    steps = sum(cost.steps for cost in costs)
    learning = sum(cost.seconds.get(name, 0.0) for cost in costs for name in _STEPS)
    return RowCost(
        label=label,
        phases=_phases(costs, names, longest),
        total=fmean(cost.total for cost in costs),
        step=learning / steps if steps and learning else None,
        clustering_percent=_mean(costs, lambda cost: cost.clustering_percent),
        times_erm=_mean(costs, lambda cost: cost.times_erm),
        memory=_mean(costs, lambda cost: cost.peak_memory),
        n=len(costs),
    )


def _phases(costs: Sequence[Cost], names: Sequence[str], longest: float) -> tuple[Phase, ...]:
    found: list[Phase] = []
    start = 0.0
    for name in names:
        seconds = fmean(cost.seconds.get(name, 0.0) for cost in costs)
        width = 100 * seconds / longest
        found.append(Phase(name, seconds, round(start, 3), round(width, 3), *_colour(name)))
        start += width
    return tuple(found)


def _colour(name: str) -> tuple[int, int]:
    """Return colour and shade of a phase; one that is not known has the next colour."""
    if name in _STEPS:
        return _SERIES.index("steps"), max(0, _STEPS.index(name) - 1)
    return _SERIES.index(name) if name in _SERIES else len(_SERIES), 0


def _mean(costs: Sequence[Cost], of: Callable[[Cost], float | None]) -> float | None:
    """Return the mean over the runs that know it."""
    known = [value for cost in costs if (value := of(cost)) is not None]
    return fmean(known) if known else None


def _number(value: float | None, column: str) -> Item:
    digits = {"runs": 0, "× ERM": 2}.get(column, 1)
    return Item(NOTHING) if value is None else Item(f"{value:.{digits}f}", value=float(value))
