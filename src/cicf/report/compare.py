"""Rows of a table against one of them, by differences of runs with the same domain and seed."""

from collections.abc import Iterable, Sequence

from cicf.core import ResultError, did_you_mean
from cicf.report.intervals import average_interval, paired_interval
from cicf.results.table import ComparedRow, Comparison, Row, Table

NO_INTERVAL = "n = 1: no interval"
MOST_NAMED = 2
"""How many rows without a partner a sentence names."""


def compared(tables: Sequence[Table], against: str) -> tuple[Table, ...]:
    """Return the tables, each with the differences of its rows to the one that is named.

    The name of a method means its row with the same augmentation; a label means that very row.
    """
    if not any(_fits(row, against) for table in tables for row in table.rows):
        names = [name for table in tables for row in table.rows for name in (row.method, row.label)]
        hint = did_you_mean(against, names)
        raise ResultError(f"--compare {against!r} is no method or row of the table; {hint}")
    return tuple(
        table.model_copy(update={"comparison": _comparison(table, against)}) for table in tables
    )


def _fits(row: Row, name: str) -> bool:
    return name in (row.label, row.method)


def _comparison(table: Table, against: str) -> Comparison:
    rows: list[ComparedRow] = []
    pairs: list[tuple[Row, Row]] = []
    notes = ["paired differences: runs of the same domain and seed; mean, and 95 % interval by t"]
    for row in table.rows:
        partner = _partner(row, table.rows, against)
        if partner is row:
            continue
        if partner is None:
            notes.append(f"{row.label}: {against} has no row with the same augmentation")
            continue
        rows.append(_compared(row, partner, table.columns))
        pairs.append((row, partner))
    notes += _unpaired(pairs)
    found = [cell for row in rows for cell in row.cells.values()]
    if any(cell.low is None for cell in found):
        notes.append(NO_INTERVAL)
    if any(row.average is not None and row.average.low is not None for row in rows):
        notes.append("average: the targets are taken as they are; only seeds vary, alike on each")
    return Comparison(rows=tuple(rows), footnotes=tuple(notes))


def _partner(row: Row, rows: Iterable[Row], against: str) -> Row | None:
    """Return the row to compare with, which may be the row itself; None if there is none."""
    rows = list(rows)
    for each in rows:
        if each.label == against:
            return each
    found = [each for each in rows if each.method == against and each.augment == row.augment]
    if row in found:
        return row
    if len(found) > 1:
        labels = " or ".join(repr(each.label) for each in found)
        raise ResultError(f"--compare {against!r} means several rows; name one of them, {labels}")
    return found[0] if found else None


def _compared(row: Row, partner: Row, columns: Sequence[str]) -> ComparedRow:
    pairs = {name: _differences(row, partner, name) for name in row.cells if name in partner.cells}
    pairs = {name: values for name, values in pairs.items() if values}
    average = None
    if len(columns) > 1 and set(columns) <= set(pairs):
        average = average_interval([pairs[name] for name in columns])
    return ComparedRow(
        label=row.label,
        against=partner.label,
        cells={name: paired_interval(values) for name, values in pairs.items()},
        average=average,
    )


def _differences(row: Row, partner: Row, name: str) -> list[float]:
    ours, theirs = row.cells[name].values, partner.cells[name].values
    return [ours[seed] - theirs[seed] for seed in ours if seed in theirs]


def _unpaired(pairs: Sequence[tuple[Row, Row]]) -> list[str]:
    """Return sentences that name the runs which have no partner, rows without them together."""
    lacking: dict[str, list[str]] = {}
    for one, other in (each for row, partner in pairs for each in ((row, partner), (partner, row))):
        for name, cell in one.cells.items():
            there = other.cells[name].values if name in other.cells else {}
            alone = [str(seed) for seed in cell.values if seed not in there]
            if alone:
                runs = f"{one.label}, {name}: seed {', '.join(alone)}"
                lacking.setdefault(runs, []).append(other.label)
    return [
        f"{runs} has no partner in {_some(labels)} and is left out of the differences"
        for runs, labels in lacking.items()
    ]


def _some(labels: Sequence[str]) -> str:
    rest = len(labels) - MOST_NAMED
    more = [f"{rest} more rows"] if rest > 0 else []
    return " nor in ".join([*labels[:MOST_NAMED], *more])
