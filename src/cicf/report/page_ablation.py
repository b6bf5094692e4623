"""Ablations on a page: accuracy against each option that some runs differ in alone."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from cicf.core import ResultError
from cicf.report.ablation import ablation
from cicf.report.figures import COLOURS
from cicf.report.grid import NOTHING, Grid, Item, Line, signed
from cicf.report.page_plots import Plot, mean_plot
from cicf.results.axes import OVERS
from cicf.results.curves import Ablation, Curve, Point
from cicf.results.runs import FoundRun
from cicf.results.table import Interval

GREY = len(COLOURS) - 1
"""Which colour plain training has, so that it is told from the values of the option."""
HEAD = ("value", "mean %", "standard error", "difference to ERM", "runs")


class PageAblation(NamedTuple):
    """Holds one option: what its values came to, as plots and as tables."""

    title: str
    option: str
    curves: tuple[tuple[Plot, Grid], ...]


def page_ablations(runs: Sequence[FoundRun]) -> tuple[PageAblation, ...]:
    """Return an ablation for every option that has one; the runs of a table, so none is mixed."""
    return tuple(_shown(found) for found in _ablations(runs))


def _ablations(runs: Sequence[FoundRun]) -> Iterator[Ablation]:
    for over in OVERS:
        try:
            yield ablation(runs, over)
        except ResultError:
            # No two runs differ in this option alone.
            continue


def _shown(found: Ablation) -> PageAblation:
    curves = tuple((_plot(curve), _grid(curve)) for curve in found.curves)
    return PageAblation(found.axis, found.option, curves)


def _plot(curve: Curve) -> Plot:
    rows = [(str(each.value), each.mean.mean, each.error, 0) for each in curve.points]
    if (base := curve.baseline) is not None:
        rows.append((str(base.value), base.mean.mean, base.error, GREY))
    return mean_plot(curve.title, rows)


def _grid(curve: Curve) -> Grid:
    points = [*curve.points, *([curve.baseline] if curve.baseline else [])]
    lines = tuple(Line("ours", str(point.value), tuple(_items(point))) for point in points)
    return Grid(curve.title, HEAD, lines, curve.footnotes)


def _items(point: Point) -> Iterator[Item]:
    mean = point.mean
    yield Item(f"{mean.mean:.1f}", value=mean.mean)
    yield Item(NOTHING if point.error is None else f"{point.error:.2f}", value=point.error)
    yield Item(NOTHING) if point.difference is None else _difference(point.difference)
    yield Item(str(mean.n), value=float(mean.n))


def _difference(found: Interval) -> Item:
    text = f"{signed(found.mean)} ({found.n})"
    if found.low is not None and found.high is not None:
        text = f"{signed(found.mean)} [{signed(found.low, 2)}, {signed(found.high, 2)}]"
    return Item(text, value=found.mean)
