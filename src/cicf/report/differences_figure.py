"""Paired differences as a figure: a panel for each table, a line for each domain and row."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from cicf.core import ResultError
from cicf.report.figures import COLOURS, MARKERS, save_figure, styled
from cicf.results.table import ComparedRow, Interval, Table

WIDTH, LINE, REST = 5.4, 0.17, 1.0
"""Of a panel, of a line in it, and of what is around them, in inches."""
_GAP = 0.7
"""Lines that stay free between domains."""
HEAD = (
    *("data", "fingerprint", "protocol", "model", "row", "against", "column"),
    *("difference", "low", "high", "pairs", "df"),
)


def save_differences(tables: Sequence[Table], output: Path, *, command: str) -> tuple[Path, ...]:
    """Draw the paired differences of tables, and store figure and data; return the files."""
    shown = [table for table in tables if _rows(table)]
    if not shown:
        raise ResultError(
            "no row has a run of the same domain and seed as the one that it is compared with; "
            "name folders with runs of both"
        )
    heights = [_height(table) for table in shown]
    with styled(WIDTH, sum(heights)) as figure:
        panels = figure.subplots(len(shown), 1, squeeze=False, height_ratios=heights).flatten()
        for panel, table in zip(panels, shown, strict=True):
            draw_differences(panel, table)
        rows = [row for table in shown for row in _data(table)]
        return save_figure(figure, output, head=HEAD, rows=rows, command=command)


def _rows(table: Table) -> tuple[ComparedRow, ...]:
    return table.comparison.rows if table.comparison else ()


def _columns(table: Table) -> dict[str, dict[int, Interval]]:
    """Return the differences by column, the average first, and by the place of their row."""
    rows = _rows(table)
    averages = {k: row.average for k, row in enumerate(rows) if row.average is not None}
    found = {table.average_name: averages} if averages else {}
    for column in table.columns:
        found[column] = {k: row.cells[column] for k, row in enumerate(rows) if column in row.cells}
    return {column: cells for column, cells in found.items() if cells}


def _height(table: Table) -> float:
    columns = _columns(table)
    return REST + LINE * (sum(map(len, columns.values())) + _GAP * len(columns) + len(_rows(table)))


def draw_differences(panel: Axes, table: Table) -> None:
    """Draw a dot and a bar for each difference, domains below each other."""
    rows = _rows(table)
    place, ticks = 0.0, {}
    named: set[int] = set()
    for column, cells in _columns(table).items():
        ticks[column] = place + (len(cells) - 1) / 2
        for k, cell in cells.items():
            panel.errorbar(
                cell.mean,
                place,
                xerr=_reach(cell),
                color=COLOURS[k % len(COLOURS)],
                marker=MARKERS[k % len(MARKERS)],
                markersize=4,
                capsize=2,
                # Of several columns the first names the row.
                label="_" if k in named else f"{rows[k].label} − {rows[k].against}",
            )
            named.add(k)
            place += 1
        place += _GAP
    panel.axvline(0, color="0.3", linewidth=1, zorder=1)
    panel.set_yticks(list(ticks.values()), list(ticks))
    panel.set_ylim(place - _GAP, -1)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("points of accuracy, paired by seed; bars: 95 %")
    panel.set_title(f"{table.title}, paired differences", fontsize=8)
    # Below the label of the axis, by a distance in letters that no height changes.
    panel.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, 0), borderaxespad=5)


def _reach(cell: Interval) -> list[list[float]] | None:
    """Return how far an interval goes to both sides; None where a single pair has none."""
    if cell.low is None or cell.high is None:
        return None
    return [[cell.mean - cell.low], [cell.high - cell.mean]]


def _data(table: Table) -> Iterator[Sequence[object]]:
    head = (table.data, table.fingerprint, table.protocol, table.model)
    for row in _rows(table):
        cells = {"average": row.average, **row.cells} if row.average else row.cells
        for column, cell in cells.items():
            assert cell is not None
            yield (
                *(*head, row.label, row.against, column),
                *(cell.mean, cell.low, cell.high, cell.n, cell.df),
            )
