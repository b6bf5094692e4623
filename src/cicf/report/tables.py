"""Tables in the formats that people and programs read."""

import csv
import json
import textwrap
from collections.abc import Callable, Iterator, Sequence
from io import StringIO
from typing import Literal

from cicf.report.grid import Grid, Item, grids
from cicf.report.latex import latex
from cicf.results.table import Cell, Interval, Row, Table

Format = Literal["text", "markdown", "latex", "csv", "json", "html"]

WIDTH = 100
"""Columns of a terminal that a text of four domains fits in."""
_MARK = "● "
_WIDEST_LABEL, _WIDEST_HEAD, _UNBOUND = 26, 16, 100_000
CSV_HEAD = (
    *("data", "fingerprint", "protocol", "model", "select", "parameters"),
    *("row", "method", "augment", "kind", "column"),
    *("mean", "std", "n", "seeds", "values", "best"),
    *("published", "published_recomputed", "difference", "caveat"),
    *("compared_with", "paired_difference", "low", "high", "pairs", "df"),
)


def render(tables: Sequence[Table], format: Format) -> str:  # noqa: A002  (the option's name)
    """Return tables as one document, which ends with a line break.

    Names from the data stay text in every format, whatever characters they have.
    """
    writers: dict[Format, Callable[[Sequence[Table]], str]] = {
        "text": lambda each: _joined(each, _text),
        "markdown": lambda each: _joined(each, _markdown),
        "latex": lambda each: _joined(each, latex),
        "csv": _csv,
        "json": _json,
        "html": _html,
    }
    return writers[format](tables)


def _joined(tables: Sequence[Table], write: Callable[[Grid], str]) -> str:
    return "\n".join(write(grid) for table in tables for grid in grids(table))


def _text(grid: Grid) -> str:
    from rich import box
    from rich.console import Console
    from rich.measure import Measurement
    from rich.table import Table as RichTable
    from rich.text import Text

    shown = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    shown.add_column(grid.head[0], max_width=_WIDEST_LABEL, overflow="fold")
    for name in grid.head[1:]:
        head = Text(_printable(name), overflow="fold")
        shown.add_column(head, justify="right", max_width=_WIDEST_HEAD, overflow="fold")
    for place, line in enumerate(grid.lines):
        if place and line.kind == "ours":
            shown.add_section()
        label = _printable(line.label) if line.kind == "ours" else f"  {line.label}"
        shown.add_row(Text(label), *(Text(_two_lines(item)) for item in line.items))
    written = StringIO()
    console = Console(file=written, width=_UNBOUND, color_system=None, legacy_windows=False)
    # Many domains are wider than a page, and better so than with letters below each other.
    console.width = max(WIDTH, Measurement.get(console, console.options, shown).maximum)
    console.print(shown)
    body = "\n".join(line.rstrip() for line in written.getvalue().splitlines())
    notes = "\n".join(_wrapped(_printable(note)) for note in grid.notes(_MARK.strip()))
    return f"{_wrapped(_printable(grid.title), '')}\n\n{body}\n\n{notes}\n"


def _two_lines(item: Item) -> str:
    """Return a field as narrow as it gets, with its interval below."""
    text = item.text.replace(" [", "\n[").replace(" ± ", "±")
    return f"{_MARK}{text}" if item.is_best else text


def _wrapped(text: str, bullet: str = "- ") -> str:
    return textwrap.fill(
        text, WIDTH, initial_indent=bullet, subsequent_indent=" " * len(bullet), tabsize=1
    )


def _printable(text: str) -> str:
    """Return a text in which what would move the cursor or change colours is written out."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode() for each in text
    )


def _markdown(grid: Grid) -> str:
    def line(fields: Sequence[str]) -> str:
        return f"| {' | '.join(fields)} |"

    lines = [f"**{_escaped(grid.title)}**", "", line([_escaped(name) for name in grid.head])]
    lines.append(line(["---", *("---:" for _ in grid.head[1:])]))
    for label, items in ((_label(each.kind, each.label), each.items) for each in grid.lines):
        texts = [f"**{_escaped(i.text)}**" if i.is_best else _escaped(i.text) for i in items]
        lines.append(line([label, *texts]))
    lines += ["", *(f"- {_escaped(note)}" for note in grid.notes("bold"))]
    return "\n".join(lines) + "\n"


def _label(kind: str, label: str) -> str:
    return _escaped(label) if kind == "ours" else f"*{label}*"


def _escaped(text: str) -> str:
    """Return a text in which nothing is Markdown or HTML."""
    text = _printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{each}" if each in "\\`*_[]|~#" else each for each in text)


def _csv(tables: Sequence[Table]) -> str:
    written = StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(CSV_HEAD)
    for table in tables:
        for row in table.rows:
            for kind, column, cell in _cells(table, row):
                writer.writerow(_record(table, row, kind=kind, column=column, cell=cell))
    return written.getvalue()


def _cells(table: Table, row: Row) -> Iterator[tuple[str, str, Cell]]:
    for column in table.columns:
        if column in row.cells:
            yield "column", column, row.cells[column]
    if row.average is not None:
        yield "average", "average", row.average


def _record(table: Table, row: Row, *, kind: str, column: str, cell: Cell) -> list[object]:
    against, interval = _difference(table, row, None if kind == "average" else column)
    head = (table.data, table.fingerprint, table.protocol, table.model)
    return [
        *(*head, table.select, table.parameters, row.label, row.method, row.augment, kind, column),
        *(cell.mean, cell.std, cell.n),
        *(" ".join(map(str, cell.values)), " ".join(map(str, cell.values.values()))),
        *(int(cell.is_best), cell.published, cell.recomputed, cell.difference, table.caveat),
        against,
        *((interval.mean, interval.low, interval.high) if interval else (None,) * 3),
        *((interval.n, interval.df) if interval else (None,) * 2),
    ]


def _difference(table: Table, row: Row, column: str | None) -> tuple[str | None, Interval | None]:
    """Return what a cell is compared with, and its paired difference; of an average for None."""
    for each in table.comparison.rows if table.comparison else ():
        if each.label == row.label:
            return each.against, (each.average if column is None else each.cells.get(column))
    return None, None


def _json(tables: Sequence[Table]) -> str:
    found = [table.model_dump(mode="json") for table in tables]
    return json.dumps({"tables": found}, indent=2, ensure_ascii=False) + "\n"


def _html(tables: Sequence[Table]) -> str:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("cicf.report"), autoescape=True, undefined=StrictUndefined
    )
    shown = [grid for table in tables for grid in grids(table)]
    return environment.get_template("tables.html").render(grids=shown) + "\n"
