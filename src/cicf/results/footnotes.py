"""What must be said beside the numbers of a table."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from cicf.results.entries import TEST, Entry, usual_options
from cicf.results.published import PublishedTable
from cicf.results.record import Choice, Parameters
from cicf.results.table import Cell, Table

SELECTIONS: dict[Choice, str] = {
    "last": "last epoch (headline)",
    "best": "best source validation",
    "oracle": "ORACLE: epoch chosen on the target; not comparable",
}
SYMBOLS: dict[Parameters, str] = {"theta": "θ", "theta_dagger": "θ†"}

MOST_NOTES = 5
"""How many notes of runs a table repeats."""

Groups = Mapping[str, Sequence[Entry]]
"""The runs of every row, by its label."""


def footnotes(table: Table, groups: Groups, paper: PublishedTable | None) -> tuple[str, ...]:
    """Return sentences that say how the numbers of a table came about."""
    found = [
        f"protocol: {table.protocol}",
        f"columns: {_columns(table, groups)}",
        f"epoch: {SELECTIONS[table.select]}",
        f"parameters: {_parameters(table, groups)}",
        f"seeds: {_seeds(table)}",
        f"data: {table.data}, fingerprint {table.fingerprint}",
        f"versions: {_versions(groups)}",
        *_threads(groups),
        *_notes(groups),
        *_average(table),
        *_usual(groups),
    ]
    if paper is not None and any(cell.published is not None for cell in _cells(table)):
        found += _paper(table, paper)
    return tuple(found)


def _columns(table: Table, groups: Groups) -> str:
    name = next(iter(groups.values()))[0].setup.protocol.name
    if table.on == "validation" and name != "hold-out":
        own = "trained on" if name == "single-source" else "held out"
        return f"the domain that was {own}; numbers are for the validation images of the sources"
    if name == "hold-out" and table.columns == (TEST,):
        return "the test part, all images together"
    if name == "hold-out":
        return "source validation, all images together, because nothing was held out to test on"
    if name == "single-source":
        return "the domain that was trained on; its number is the plain mean over the other domains"
    return "the domain that was held out and tested on"


def _parameters(table: Table, groups: Groups) -> str:
    found: dict[str, set[Parameters]] = {}
    for entries in groups.values():
        found.setdefault(entries[0].label, set()).update(entry.parameters for entry in entries)
    rows: dict[Parameters, list[str]] = {}
    for label, entries in groups.items():
        # Rows of one name need it said once, unless they differ in this.
        name = entries[0].label if len(found[entries[0].label]) == 1 else label
        for parameters in {entry.parameters for entry in entries}:
            rows.setdefault(parameters, []).append(name)
    if table.parameters != "deployed":
        return f"{SYMBOLS[table.parameters]}, whatever a method deploys"
    if len(rows) == 1:
        return f"what each method deploys, here {SYMBOLS[next(iter(rows))]} of all"
    parts = [f"{SYMBOLS[each]} of {', '.join(dict.fromkeys(rows[each]))}" for each in sorted(rows)]
    return f"what each method deploys, {'; '.join(parts)}"


def _seeds(table: Table) -> str:
    counts = [cell.n for row in table.rows for cell in row.cells.values()]
    low, high = min(counts), max(counts)
    if high == 1:
        return "1 a cell, so there is no deviation"
    number = str(low) if low == high else f"{low}–{high}"
    return f"{number} a cell; mean ± sample standard deviation over them"


def _versions(groups: Groups) -> str:
    found: dict[str, set[str]] = {}
    for entries in groups.values():
        for entry in entries:
            for name, version in entry.setup.versions.items():
                found.setdefault(name, set()).add(version)
    return ", ".join(f"{name} {' and '.join(sorted(each))}" for name, each in found.items())


def _threads(groups: Groups) -> Iterator[str]:
    runs = [entry.setup for entries in groups.values() for entry in entries]
    counts = sorted({setup.threads for setup in runs if setup.threads is not None})
    if counts:
        yield f"threads: {' and '.join(map(str, counts))}; their number changes last bits"


def _notes(groups: Groups) -> Iterator[str]:
    """Yield what the runs found worth a note, each once, and how many runs say it."""
    runs = [entry.setup for entries in groups.values() for entry in entries]
    found = Counter(note for setup in runs for note in setup.notes)
    for note, count in list(found.items())[:MOST_NOTES]:
        yield f"note of {count} of {len(runs)} runs: {note}"
    if len(found) > MOST_NOTES:
        yield f"{len(found) - MOST_NOTES} more notes are in the folders of the runs, setup.json"


def _average(table: Table) -> Iterator[str]:
    if len(table.domains) == 1:
        return
    missing = [domain for domain in table.domains if domain not in table.columns]
    if missing:
        over = f"over {', '.join(table.columns)} alone" if len(table.columns) > 1 else "none"
        yield f"average: {over}, because no run has {', '.join(missing)} as its column"
    if not all(row.average for row in table.rows) and len(table.columns) > 1:
        yield "average: only where a row has a run for each column"
    if table.has_average:
        yield (
            f"{table.average_name}: the mean over domains of their means; its deviation is over "
            "per-seed averages"
        )


def _usual(groups: Groups) -> Iterator[str]:
    """Yield what rows leave unsaid because most of those with the same name have it."""
    rows = [(entries[0].label, entries[0].options) for entries in groups.values()]
    for label, options in usual_options(rows).items():
        if options:
            said = ", ".join(f"{name}={value}" for name, value in options.items())
            yield f"{label}, where a row does not say otherwise: {said}"


def _paper(table: Table, paper: PublishedTable) -> Iterator[str]:
    yield f"paper: {paper.source}"
    if table.caveat is not None:
        yield table.caveat
    for row in table.rows:
        printed = paper.row(row.method, row.augment)
        if printed is not None and printed.note is not None:
            yield f"{printed.label} in the paper: {printed.note}"
    yield (
        "difference: ours minus the paper's; an average's is against the one in brackets, "
        "recomputed from the paper's cells"
    )


def _cells(table: Table) -> Iterator[Cell]:
    for row in table.rows:
        yield from row.cells.values()
        if row.average is not None:
            yield row.average
