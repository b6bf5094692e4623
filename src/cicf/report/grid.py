"""A table as lines of text, before any format: what stands where, and what is marked."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from cicf.results.table import Cell, ComparedRow, Interval, Row, Table

NOTHING = "–"
"""What stands where there is no number."""
N_NOTE = "in brackets: seeds of the cell; of an average those that have all domains"


class Item(NamedTuple):
    """Is one field of a grid."""

    text: str
    is_best: bool = False
    value: float | None = None
    """What lines are sorted by, with all its digits; None where there is no number."""


class Line(NamedTuple):
    """Is one line of a grid; those of the paper's values belong to the line of ours above."""

    kind: Literal["ours", "paper"]
    label: str
    items: tuple[Item, ...]


class Grid(NamedTuple):
    """Holds a table as text."""

    title: str
    head: tuple[str, ...]
    lines: tuple[Line, ...]
    footnotes: tuple[str, ...]

    def notes(self, mark: str) -> tuple[str, ...]:
        """Return the footnotes, with what marks the best of a column in this format."""
        is_marked = any(item.is_best for line in self.lines for item in line.items)
        return (*self.footnotes, *([f"{mark}: the best mean of its column"] if is_marked else []))


def grids(table: Table) -> Iterator[Grid]:
    """Yield the accuracies, and the paired differences where rows are compared."""
    lines = tuple(line for row in table.rows for line in _lines(table, row))
    yield Grid(table.title, _head(table), lines, (*table.footnotes, N_NOTE))
    if table.comparison is not None and table.comparison.rows:
        compared = tuple(_compared(table, row) for row in table.comparison.rows)
        title = f"{table.title}, paired differences"
        yield Grid(title, _head(table), compared, table.comparison.footnotes)


def signed(value: float, digits: int = 1) -> str:
    """Return a difference with its sign; what rounds to zero has none."""
    text = f"{value:+.{digits}f}"
    return text[1:] if float(text) == 0 else text


def _head(table: Table) -> tuple[str, ...]:
    return ("method", *table.columns, *([table.average_name] if table.has_average else []))


def _lines(table: Table, row: Row) -> Iterator[Line]:
    cells: list[Cell | None] = [row.cells.get(column) for column in table.columns]
    if table.has_average:
        cells.append(row.average)
    ours = tuple(_ours(cell) for cell in cells)
    yield Line("ours", row.label, ours)
    if any(cell is not None and cell.published is not None for cell in cells):
        yield Line("paper", "paper", tuple(Item(_paper(cell)) for cell in cells))
        yield Line("paper", "difference", tuple(Item(_difference(cell)) for cell in cells))


def _ours(cell: Cell | None) -> Item:
    if cell is None:
        return Item(NOTHING)
    text = f"{cell.mean:.1f}"
    if cell.std is not None:
        text += f" ± {cell.std:.1f}"
    return Item(f"{text} ({cell.n})", cell.is_best, cell.mean)


def _paper(cell: Cell | None) -> str:
    if cell is None or cell.published is None:
        return NOTHING
    if cell.recomputed is None:
        return str(cell.published)
    return f"{cell.published} ({cell.recomputed.normalize():f})"


def _difference(cell: Cell | None) -> str:
    return NOTHING if cell is None or cell.difference is None else signed(cell.difference)


def _compared(table: Table, row: ComparedRow) -> Line:
    cells = [row.cells.get(column) for column in table.columns]
    if table.has_average:
        cells.append(row.average)
    items = tuple(
        Item(_interval(cell), value=None if cell is None else cell.mean) for cell in cells
    )
    return Line("ours", f"{row.label} vs {row.against}", items)


def _interval(cell: Interval | None) -> str:
    if cell is None:
        return NOTHING
    if cell.low is None or cell.high is None:
        return f"{signed(cell.mean)} ({cell.n})"
    # With more digits than the mean, so that one sees on which side of zero an end lies.
    return f"{signed(cell.mean)} [{signed(cell.low, 2)}, {signed(cell.high, 2)}]"
