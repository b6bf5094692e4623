"""What the paper prints: its tables cell by cell, as facts in a file."""

import tomllib
from decimal import Decimal
from functools import cache
from importlib.resources import files
from typing import Annotated, Literal

from pydantic import PlainSerializer

from cicf.core.frozen import Frozen
from cicf.core.names import plain

REBUILT = "the paper's values are for Digits-DG; these images are a rebuild of it"
ROWLESS = {"coral": "CORAL", "ddaig": "DDAIG"}
"""Methods that the paper's text names, and no row of a table."""

Printed = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]
"""A number with the digits that were printed: 96.93 beside 96.0."""


class PublishedColumn(Frozen):
    """Names a target domain: by our name, as it is printed, and as others call it."""

    name: str
    printed: str
    also: tuple[str, ...] = ()


class PublishedRow(Frozen):
    """Holds what a table prints of one method."""

    label: str
    """The method as it is printed."""
    method: str
    """The method by our name."""
    augment: Literal["basic", "autoaugment"] = "basic"
    cells: tuple[Printed, ...] = ()
    """In the order of the columns; none where only the average is printed."""
    average: Printed
    """As printed; it does not follow from the cells in every row."""
    note: str | None = None
    """The paper's footnote to the row, in our words."""

    @property
    def recomputed(self) -> Decimal | None:
        """Return the average that follows from the cells."""
        return sum(self.cells, Decimal()) / len(self.cells) if self.cells else None


class PublishedTable(Frozen):
    """Holds one table of the paper."""

    data: str
    model: str
    source: str
    """Which table it is, in words."""
    columns: tuple[PublishedColumn, ...]
    rows: tuple[PublishedRow, ...]
    caveat: str | None = None
    """What every rendering must say where the values are for other images than ours."""
    scored: str = "all images"
    """What of the target the values are for."""
    rebuilds: tuple[str, ...] = ()
    """Data sets that stand in for this one and are not the same images."""

    def row(self, method: str, augment: str) -> PublishedRow | None:
        """Return the row of a method; None if the table has none."""
        for row in self.rows:
            if plain(row.method) == plain(method) and row.augment == augment:
                return row
        return None

    def place(self, domain: str) -> int | None:
        """Return which column a domain is, by any of its names; None if it is none."""
        for place, column in enumerate(self.columns):
            if plain(domain) in map(plain, (column.name, column.printed, *column.also)):
                return place
        return None


@cache
def published_tables() -> tuple[PublishedTable, ...]:
    """Return all tables."""
    text = (files("cicf.results") / "published.toml").read_text(encoding="utf-8")
    # As decimals, so that a number keeps the digits that were printed.
    found = tomllib.loads(text, parse_float=Decimal)
    return tuple(
        PublishedTable.model_validate({**facts, "rows": _labelled(facts["rows"])})
        for facts in found.values()
    )


def published(data: str, model: str) -> PublishedTable | None:
    """Return the table of some data and a network; None if the paper has none.

    The table for a rebuild of the data says so in its caveat.
    """
    for table in published_tables():
        if plain(model) != plain(table.model):
            continue
        if plain(data) == plain(table.data):
            return table
        if plain(data) in map(plain, table.rebuilds):
            return table.model_copy(update={"caveat": REBUILT})
    return None


def printed_label(method: str) -> str | None:
    """Return how the paper writes a method, with basic augmentation; None if it does not."""
    for table in published_tables():
        for row in table.rows:
            if plain(row.method) == plain(method) and row.augment == "basic":
                return row.label.rstrip("‡")
    return ROWLESS.get(method)


def _labelled(rows: dict[str, dict[str, object]]) -> list[dict[str, object]]:
    return [{"label": label, **row} for label, row in rows.items()]
