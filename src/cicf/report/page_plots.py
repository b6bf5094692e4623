"""Plots that need no script: dots and intervals on a line, placed in percent of its width."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from matplotlib.ticker import MaxNLocator

from cicf.report.grid import signed
from cicf.results.table import Cell, Interval, Table

_MARGIN = 4.0
"""Percent of the width that stay free at both ends, so that no dot is cut."""


class Mark(NamedTuple):
    """Is something at a place of a line, with the words that tell what it is."""

    at: float
    text: str
    kind: str = "value"


class Track(NamedTuple):
    """Is one line of a plot: its name, what is on it, and the number beside it."""

    label: str
    series: int
    """Which colour it has."""
    marks: tuple[Mark, ...]
    number: str
    is_best: bool = False
    span: tuple[float, float] | None = None
    """Where an interval begins and ends."""


class Plot(NamedTuple):
    """Holds lines that share an axis."""

    title: str
    ticks: tuple[Mark, ...]
    tracks: tuple[Track, ...]
    zero: float | None = None
    """Where a line for zero stands."""


class _Axis:
    """Places numbers between the ends of an axis."""

    def __init__(self, values: Iterable[float]) -> None:
        found = list(values)
        ticks = MaxNLocator(nbins=5, steps=[1, 2, 5, 10]).tick_values(min(found), max(found))
        self._low, self._high = float(ticks[0]), float(ticks[-1])
        self.ticks = tuple(Mark(self.at(float(each)), f"{each:g}") for each in ticks)

    def at(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return round(_MARGIN + (100 - 2 * _MARGIN) * share, 3)


def accuracy_plots(table: Table) -> tuple[Plot, ...]:
    """Return a plot for the average, if there is one, and one for each column.

    A line has the accuracy of every seed, their mean, and what the paper prints.
    """
    averages = {row.label: row.average for row in table.rows if row.average is not None}
    columns: dict[str, dict[str, Cell]] = {table.average_name: averages} if averages else {}
    for column in table.columns:
        columns[column] = {r.label: r.cells[column] for r in table.rows if column in r.cells}
    labels = [row.label for row in table.rows]
    return tuple(_accuracies(name, cells, labels) for name, cells in columns.items())


def _accuracies(name: str, cells: Mapping[str, Cell], labels: Sequence[str]) -> Plot:
    axis = _Axis(value for cell in cells.values() for value in _shown(cell))
    tracks = (
        Track(
            label,
            labels.index(label),
            tuple(_marks(cell, axis)),
            f"{cell.mean:.1f}",
            cell.is_best,
        )
        for label, cell in cells.items()
    )
    return Plot(name, axis.ticks, tuple(tracks))


def _shown(cell: Cell) -> Iterator[float]:
    yield from cell.values.values()
    yield cell.mean
    if cell.published is not None:
        yield float(cell.published)


def _marks(cell: Cell, axis: _Axis) -> Iterator[Mark]:
    for seed, value in cell.values.items() if cell.n > 1 else ():
        yield Mark(axis.at(value), f"seed {seed}: {value:.2f} %", "seed")
    spread = "" if cell.std is None else f" ± {cell.std:.2f}"
    yield Mark(axis.at(cell.mean), f"mean of {cell.n}: {cell.mean:.2f}{spread} %", "mean")
    if cell.published is not None:
        # Last, so that its outline is seen where it meets ours.
        yield Mark(axis.at(float(cell.published)), f"paper: {cell.published}", "paper")


def difference_plots(table: Table) -> tuple[Plot, ...]:
    """Return the paired differences to the row that others are compared with, by column."""
    rows = table.comparison.rows if table.comparison else ()
    labels = [row.label for row in table.rows]
    averages = {row.label: row.average for row in rows if row.average is not None}
    columns: dict[str, dict[str, Interval]] = {table.average_name: averages} if averages else {}
    for column in table.columns:
        columns[column] = {row.label: row.cells[column] for row in rows if column in row.cells}
    return tuple(_differences(name, cells, labels) for name, cells in columns.items() if cells)


def _differences(name: str, cells: Mapping[str, Interval], labels: Sequence[str]) -> Plot:
    axis = _Axis([0.0, *(value for cell in cells.values() for value in _ends(cell))])
    tracks = (
        Track(
            label,
            labels.index(label),
            (Mark(axis.at(cell.mean), _told(cell), "mean"),),
            signed(cell.mean),
            span=_span(cell, axis),
        )
        for label, cell in cells.items()
    )
    return Plot(name, axis.ticks, tuple(tracks), axis.at(0.0))


def mean_plot(title: str, rows: Sequence[tuple[str, float, float | None, int]]) -> Plot:
    """Return means with bars to both sides: of each the name, the mean, its error, its colour."""
    axis = _Axis(mean + sign * (error or 0.0) for _, mean, error, _ in rows for sign in (-1, 1))
    tracks = (
        Track(
            label,
            series,
            (Mark(axis.at(mean), _with_error(mean, error), "mean"),),
            f"{mean:.1f}",
            span=None if error is None else (axis.at(mean - error), axis.at(mean + error)),
        )
        for label, mean, error, series in rows
    )
    return Plot(title, axis.ticks, tuple(tracks))


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:.2f} %" if error is None else f"{mean:.2f} ± {error:.2f} %"


def _span(cell: Interval, axis: _Axis) -> tuple[float, float] | None:
    if cell.low is None or cell.high is None:
        return None
    return axis.at(cell.low), axis.at(cell.high)


def _ends(cell: Interval) -> tuple[float, float]:
    return (
        cell.mean if cell.low is None else cell.low,
        cell.mean if cell.high is None else cell.high,
    )


def _told(cell: Interval) -> str:
    if cell.low is None or cell.high is None:
        return f"{signed(cell.mean, 2)} points; one pair, so there is no interval"
    ends = f"{signed(cell.low, 2)} to {signed(cell.high, 2)}"
    return f"{signed(cell.mean, 2)} points, 95 %: {ends}, {cell.n} pairs"
