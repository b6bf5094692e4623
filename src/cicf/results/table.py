"""Tables of results: rows of options, columns of domains, never of different data or protocols."""

from pathlib import Path

from cicf.core.frozen import Frozen
from cicf.results.entries import Chosen, On
from cicf.results.published import Printed
from cicf.results.record import Choice


class Cell(Frozen):
    """Holds the accuracies of one row on one domain, or its average over the domains."""

    values: dict[int, float]
    """By seed; of an average those of seeds that have all domains."""
    mean: float
    std: float | None
    """Sample standard deviation over the seeds; None for a single one."""
    n: int
    published: Printed | None = None
    """What the paper prints."""
    recomputed: Printed | None = None
    """Of an average, what follows from the paper's cells."""
    difference: float | None = None
    """Ours minus the paper's; of averages minus the recomputed one."""
    is_best: bool = False


class Row(Frozen):
    """Holds what runs with the same options came to."""

    label: str
    method: str
    augment: str
    cells: dict[str, Cell]
    """By column; a domain without a run is absent."""
    average: Cell | None
    """Over the columns of the table; None unless there is a run for each of them."""
    runs: tuple[Path, ...] = ()
    """The folders that its numbers are from."""


class Interval(Frozen):
    """Holds a mean difference, and where its true value lies with 95 % confidence."""

    mean: float
    n: int
    """Pairs."""
    df: int
    low: float | None = None
    high: float | None = None


class ComparedRow(Frozen):
    """Holds the paired differences of a row to the one it is compared with."""

    label: str
    against: str
    cells: dict[str, Interval]
    average: Interval | None


class Comparison(Frozen):
    """Holds the paired differences of all rows that have a partner."""

    rows: tuple[ComparedRow, ...]
    footnotes: tuple[str, ...]


class Table(Frozen):
    """Holds one table, with everything that must be said beside its numbers."""

    title: str
    data: str
    fingerprint: str
    protocol: str
    model: str
    select: Choice
    parameters: Chosen
    on: On = "test"
    columns: tuple[str, ...]
    domains: tuple[str, ...]
    """Those of the data; more than the columns where a domain has no run."""
    rows: tuple[Row, ...]
    footnotes: tuple[str, ...]
    caveat: str | None = None
    """Why the paper's values are for other images, if they are."""
    comparison: Comparison | None = None

    @property
    def has_average(self) -> bool:
        """Tell whether any row has one."""
        return any(row.average is not None for row in self.rows)

    @property
    def average_name(self) -> str:
        """Return what stands above averages, which says so if they are not over all domains."""
        is_whole = set(self.domains) <= set(self.columns)
        return "Avg." if is_whole else f"Avg. of {len(self.columns)}"


class Tables(Frozen):
    """Holds tables, and a sentence for each run that is in none."""

    tables: tuple[Table, ...]
    skipped: tuple[str, ...]
