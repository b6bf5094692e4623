"""From runs to tables: means over seeds, averages over domains, and the paper's values beside."""

import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal
from math import isclose
from statistics import fmean, stdev
from typing import NamedTuple, TypeVar

from cicf.core import ResultError
from cicf.results.entries import (
    Chosen,
    Entry,
    On,
    TableKey,
    make_entry,
    unique_labels,
)
from cicf.results.footnotes import footnotes
from cicf.results.published import PublishedRow, PublishedTable, published
from cicf.results.record import Choice
from cicf.results.runs import FoundRun
from cicf.results.table import Cell, Row, Table, Tables

LAST_ROWS = ("erm", "maml", "cicf")
"""Methods that end a table, as in the paper."""


class _Beside(NamedTuple):
    """Holds the row of the paper that ours stands beside."""

    table: PublishedTable
    row: PublishedRow


_Item = TypeVar("_Item")
_Key = TypeVar("_Key", bound=Hashable)


def make_tables(
    runs: Sequence[FoundRun],
    *,
    select: Choice = "last",
    parameters: Chosen = "deployed",
    on: On = "test",
) -> Tables:
    """Return a table for each data set, fingerprint, protocol and network among the runs."""
    if not runs:
        raise ResultError("there is no finished run to show; finish one with cicf train --resume")
    entries: list[Entry] = []
    skipped: list[str] = []
    for run in runs:
        try:
            entries.append(make_entry(run, select=select, parameters=parameters, on=on))
        except ResultError as error:
            skipped.append(str(error))
    if not entries:
        raise ResultError(f"none of {len(runs)} runs goes into a table; the first: {skipped[0]}")
    used, repeated = _without_repetitions(entries)
    tables = [
        _table(group, select=select, parameters=parameters, on=on)
        for _, group in sorted(_grouped(used, lambda entry: entry.key).items())
    ]
    return Tables(tables=tuple(tables), skipped=(*skipped, *repeated))


def _without_repetitions(entries: Iterable[Entry]) -> tuple[list[Entry], list[str]]:
    """Return the first of runs with the same options, domain and seed, and name the others."""
    used: dict[Hashable, Entry] = {}
    repeated: list[str] = []
    for entry in entries:
        first = used.setdefault((entry.key, entry.row, entry.column, entry.seed), entry)
        if first is not entry:
            repeated.append(
                f"{entry.path} has the options, the domain and the seed of {first.path}, "
                "which is shown"
            )
    return list(used.values()), repeated


def _table(entries: list[Entry], *, select: Choice, parameters: Chosen, on: On) -> Table:
    key, protocol = entries[0].key, entries[0].setup.protocol
    is_printed = protocol.name == "leave-one-domain-out" and on == "test"
    paper = published(key.data, key.model) if is_printed else None
    domains = _ordered({name for entry in entries for name in entry.domains}, paper)
    columns = _ordered({entry.column for entry in entries}, paper)
    groups = sorted(_grouped(entries, lambda entry: entry.row).values(), key=_rank)
    labels = unique_labels([(group[0].label, group[0].options) for group in groups])
    groups, labels = _usual_first(groups, labels)
    rows = [
        _row(label, group, columns=columns, paper=paper)
        for label, group in zip(labels, groups, strict=True)
    ]
    table = Table(
        title=_title(key, select, on),
        data=key.data,
        fingerprint=key.fingerprint,
        protocol=key.protocol,
        model=key.model,
        select=select,
        parameters=parameters,
        on=on,
        columns=columns,
        domains=domains,
        rows=_with_best(rows, columns),
        footnotes=(),
        caveat=None if paper is None else _caveat(paper, protocol.part),
    )
    notes = footnotes(table, dict(zip(labels, groups, strict=True)), paper)
    return table.model_copy(update={"footnotes": notes})


def _title(key: TableKey, select: Choice, on: On) -> str:
    what = "accuracy in %" if on == "test" else "accuracy on source validation in %"
    return f"{'ORACLE: ' if select == 'oracle' else ''}{key.data}, {key.model}: {what}"


def _caveat(paper: PublishedTable, part: str) -> str | None:
    """Return why the paper's values are for other images than ours, if they are."""
    if paper.caveat is None and part != paper.scored:
        return f"the paper's values are for the {paper.scored} of the target, ours for {part}"
    return paper.caveat


def _ordered(names: set[str], paper: PublishedTable | None) -> tuple[str, ...]:
    """Return names in the order of the paper's columns, others behind by the alphabet."""

    def rank(name: str) -> tuple[int, str]:
        place = None if paper is None else paper.place(name)
        return (len(names) if place is None else place), name

    return tuple(sorted(names, key=rank))


def _rank(group: Sequence[Entry]) -> tuple[bool, bool, int, str, tuple[str, ...], str]:
    """Return what rows are sorted by: other methods first, ERM and what builds on it last."""
    entry = group[0]
    is_last = entry.method in LAST_ROWS
    place = LAST_ROWS.index(entry.method) if is_last else 0
    return is_last, entry.augment == "autoaugment", place, entry.method, entry.added, entry.row


def _usual_first(
    groups: Sequence[list[Entry]], labels: Sequence[str]
) -> tuple[list[list[Entry]], list[str]]:
    """Return rows with those of a method by what they change, the one without changes first."""
    names = list(dict.fromkeys(group[0].label for group in groups))

    def rank(pair: tuple[list[Entry], str]) -> tuple[int, bool, list[str | float]]:
        (entry, *_), label = pair
        return names.index(entry.label), label != entry.label, _by_numbers(label)

    pairs = sorted(zip(groups, labels, strict=True), key=rank)
    return [group for group, _ in pairs], [label for _, label in pairs]


def _by_numbers(text: str) -> list[str | float]:
    """Return what texts are sorted by so that 9 is before 16: words and numbers in turn."""
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return [float(part) if place % 2 else part for place, part in enumerate(parts)]


def _row(
    label: str,
    entries: Sequence[Entry],
    *,
    columns: tuple[str, ...],
    paper: PublishedTable | None,
) -> Row:
    method, augment = entries[0].method, entries[0].augment
    # The paper has no row of a method with something added.
    beside = None if entries[0].added else _beside(paper, method, augment)
    by_column = _grouped(entries, lambda entry: entry.column)
    values = {
        column: {entry.seed: entry.value for entry in sorted(by_column[column], key=_seed)}
        for column in columns
        if column in by_column
    }
    cells = {name: _cell(each, printed=_printed(beside, name)) for name, each in values.items()}
    average = None
    if len(columns) > 1 and set(columns) <= set(cells):
        average = _with_paper(_average([values[name] for name in columns]), columns, beside)
    return Row(
        label=label,
        method=method,
        augment=augment,
        cells=cells,
        average=average,
        runs=tuple(entry.path for entry in entries),
    )


def _seed(entry: Entry) -> int:
    return entry.seed


def _beside(paper: PublishedTable | None, method: str, augment: str) -> _Beside | None:
    row = None if paper is None else paper.row(method, augment)
    return None if paper is None or row is None else _Beside(paper, row)


def _printed(beside: _Beside | None, domain: str) -> Decimal | None:
    place = None if beside is None else beside.table.place(domain)
    if beside is None or place is None or not beside.row.cells:
        return None
    return beside.row.cells[place]


def _cell(values: dict[int, float], *, printed: Decimal | None) -> Cell:
    mean = fmean(values.values())
    return Cell(
        values=values,
        mean=mean,
        std=_deviation(values),
        n=len(values),
        published=printed,
        difference=None if printed is None else mean - float(printed),
    )


def _average(values: Sequence[Mapping[int, float]]) -> Cell:
    """Return the mean over domains of their means; its deviation is over seeds that have all."""
    seeds = [seed for seed in values[0] if all(seed in each for each in values)]
    by_seed = {seed: fmean(each[seed] for each in values) for seed in seeds}
    return Cell(
        values=by_seed,
        mean=fmean(fmean(each.values()) for each in values),
        std=_deviation(by_seed),
        n=len(by_seed),
    )


def _with_paper(average: Cell, domains: tuple[str, ...], beside: _Beside | None) -> Cell:
    """Return the average with the paper's, if that is over the same domains."""
    if beside is None:
        return average
    places = [beside.table.place(domain) for domain in domains]
    if set(places) != set(range(len(beside.table.columns))):
        return average
    recomputed = beside.row.recomputed
    against = beside.row.average if recomputed is None else recomputed
    return average.model_copy(
        update={
            "published": beside.row.average,
            "recomputed": recomputed,
            "difference": average.mean - float(against),
        }
    )


def _deviation(values: Mapping[int, float]) -> float | None:
    return stdev(values.values()) if len(values) > 1 else None


def _with_best(rows: Sequence[Row], columns: tuple[str, ...]) -> tuple[Row, ...]:
    """Return the rows with the best mean of every column marked; all of them in a tie."""
    best = {
        column: _best([row.cells[column] for row in rows if column in row.cells])
        for column in columns
    }
    best_average = _best([row.average for row in rows if row.average is not None])
    return tuple(
        row.model_copy(
            update={
                "cells": {name: _marked(cell, best[name]) for name, cell in row.cells.items()},
                "average": None if row.average is None else _marked(row.average, best_average),
            }
        )
        for row in rows
    )


def _best(cells: Sequence[Cell]) -> float | None:
    """Return the highest mean; None where there is nothing to be better than."""
    return max(cell.mean for cell in cells) if len(cells) > 1 else None


def _marked(cell: Cell, best: float | None) -> Cell:
    # Means of equal scores may differ in their last bit.
    is_best = best is not None and isclose(cell.mean, best, rel_tol=1e-12)
    return cell.model_copy(update={"is_best": is_best})


def _grouped(items: Iterable[_Item], key: Callable[[_Item], _Key]) -> dict[_Key, list[_Item]]:
    groups: dict[_Key, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups
