"""`cicf data list` and `cicf data verify`: the benchmarks, and whether a copy of one is whole."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from cicf.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from cicf.data.benchmarks import Benchmark
    from cicf.data.benchmarks.verify import ClassRow, PartRow, Verification

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
MOST_CLASSES = 10
"""Up to how many classes the table has a row for each, even if nothing is off."""


def list_(json: Json = False) -> None:
    """List the data that are known by name: benchmarks, with where people get them, and ours."""
    from cicf.data.benchmarks import benchmarks
    from cicf.data.confounded import SOURCES, TARGETS
    from cicf.data.demo import DOMAINS as DEMO_DOMAINS

    if json:
        print_json([_facts(known) for known in benchmarks().values()])
        return
    columns = ("name", "images", "domains", "classes", "size")
    rows = [
        (
            known.name,
            f"{known.total:,}",
            ", ".join(known.domains),
            str(len(known.classes)),
            known.size,
        )
        for known in benchmarks().values()
    ]
    print_table("benchmarks", columns, rows, as_json=False)
    # Below the table: in columns of their own these would be a word wide.
    for known in benchmarks().values():
        print_line(f"{known.name}: {'; '.join(known.obtained)}")
        print_line(f"  licence: {known.licence}")
    print_line(f"demo: digits that come with the package; domains {', '.join(DEMO_DOMAINS)}")
    print_line(
        "confounded: digits with a known confounder, which come with the package; domains to train "
        f"on {', '.join(SOURCES)}, to test on {', '.join(TARGETS)}"
    )


def verify(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A benchmark, such as pacs; see cicf data list.")
    ],
    root: Annotated[
        Path, typer.Argument(metavar="DIR", help="The folder it lies in, in any layout.")
    ],
    json: Json = False,
) -> None:
    """Compare a benchmark with its official counts and split, and look at every image.

    The exit code is 0 if nothing is wrong, 1 if something is, 2 for a mistake in the command.
    """
    from cicf.data.benchmarks import benchmark
    from cicf.data.benchmarks.verify import verify as verified

    known = benchmark(name)
    with _progress("looking at images") as on_image:
        found = verified(known, root, on_image=on_image)
    if json:
        print_json({"name": known.name, "is_complete": found.is_complete, **_plain(found)})
    else:
        _print(known, root, found)
    if not found.is_complete:
        raise typer.Exit(1)


def _facts(known: "Benchmark") -> dict[str, object]:
    return {
        "name": known.name,
        "title": known.title,
        "images": known.total,
        "domains": {domain: sum(counts) for domain, counts in known.counts.items()},
        "classes": known.classes,
        "size": known.size,
        "where": known.obtained,
        "licence": known.licence,
    }


def _plain(found: "Verification") -> dict[str, object]:
    """Return a verification as JSON writes it, rows with the names of their columns."""
    rows = [row._asdict() for row in found.rows]
    return {**asdict(found), "rows": rows, "parts": [row._asdict() for row in found.parts]}


def _print(known: "Benchmark", root: Path, found: "Verification") -> None:
    print_line(f"{known.title} in {root}: {found.layout}")
    columns = ("domain", "class", "found", "official", "")
    print_table(f"images of {known.title}", columns, _class_rows(known, found), as_json=False)
    if found.parts:
        rows = [
            (row.domain, row.part, str(row.found), _number(row.official), _mark(row))
            for row in found.parts
        ]
        print_table("split", ("domain", "part", "found", "official", ""), rows, as_json=False)
    for note in found.notes:
        print_line(f"note: {note}")
    for problem in found.problems:
        print_line(f"problem: {problem}")
    total = sum(row.found for row in found.rows)
    verdict = "complete" if found.is_complete else f"{len(found.problems)} problems"
    print_line(f"{total:,} of {known.total:,} images; {verdict}")


def _class_rows(known: "Benchmark", found: "Verification") -> list[tuple[str, ...]]:
    """Return a row for each class, with many of them for those that are off, and the totals."""
    rows: list[tuple[str, ...]] = []
    for domain in known.domains:
        own = [row for row in found.rows if row.domain == domain]
        rows += [
            (domain, row.label, str(row.found), str(row.official), _mark(row))
            for row in own
            if len(known.classes) <= MOST_CLASSES or row.found != row.official
        ]
        total, official = sum(row.found for row in own), sum(row.official for row in own)
        rows.append((domain, "all", str(total), str(official), "" if total == official else "off"))
    return rows


def _mark(row: "ClassRow | PartRow") -> str:
    return "" if row.official in (None, row.found) else "off"


def _number(value: int | None) -> str:
    return "unknown" if value is None else str(value)


@contextmanager
def _progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """Show a bar on a terminal, and nothing elsewhere."""
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (TextColumn(what), BarColumn(bar_width=20), MofNCompleteColumn())
    with Progress(
        *columns, TimeRemainingColumn(), console=console, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
