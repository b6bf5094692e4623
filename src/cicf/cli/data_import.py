"""`cicf data import` and `cicf data fetch`: a benchmark brought into one layout, with hashes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from cicf.cli.show import print_line

if TYPE_CHECKING:
    from cicf.data.benchmarks import Benchmark
    from cicf.data.benchmarks.importing import Imported

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="The benchmark, such as pacs; see cicf data list.")
]
Source = Annotated[
    Path,
    typer.Argument(
        metavar="SOURCE", help="A folder in any layout, archives, or HDF5, parquet or arrow files."
    ),
]
Dest = Annotated[
    Path, typer.Argument(metavar="DEST", help="The folder to write; it must not exist yet.")
]
SkipUnreadable = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read.")
]


def import_(
    name: Name, source: Source, dest: Dest, skip_unreadable: SkipUnreadable = False
) -> None:
    """Copy a benchmark that you have, in any form, to DEST/domain/class/image with a manifest."""
    from cicf.data.benchmarks import benchmark
    from cicf.data.benchmarks.importing import import_benchmark

    chosen = benchmark(name)
    with _shown() as shown:
        imported = import_benchmark(
            chosen, source, dest, on_image=shown.tell, skips_unreadable=skip_unreadable
        )
    _print(chosen, imported, dest)


def fetch(name: Name, dest: Dest, skip_unreadable: SkipUnreadable = False) -> None:
    """Download a benchmark from Hugging Face, and import it to DEST."""
    from cicf.data.benchmarks import benchmark
    from cicf.data.benchmarks.fetch import fetch_benchmark

    chosen = benchmark(name)
    with _shown() as shown:
        imported = fetch_benchmark(
            chosen, dest, on_image=shown.tell, skips_unreadable=skip_unreadable
        )
    _print(chosen, imported, dest)


class _Shown:
    """Shows what goes on: a bar for each stage on a terminal, a line for each stage elsewhere."""

    def __init__(self, console: Console, bar: Progress) -> None:
        self.console, self.bar = console, bar
        self.tasks: dict[str, TaskID] = {}

    def tell(self, stage: str, done: int, total: int) -> None:
        """Show how far a stage is."""
        if stage not in self.tasks:
            self.tasks[stage] = self.bar.add_task(stage, total=total)
            if not self.console.is_terminal:
                self.console.print(f"{stage}: {total} files", soft_wrap=True)
        self.bar.update(self.tasks[stage], completed=done)


@contextmanager
def _shown() -> Iterator[_Shown]:
    # Names of a user's files may look like markup or emoji, and are neither.
    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield _Shown(console, bar)


def _print(benchmark: "Benchmark", imported: "Imported", dest: Path) -> None:
    domains = ", ".join(f"{name} {count}" for name, count in imported.domains.items())
    print_line(
        f"{benchmark.title}: {imported.images} images ({domains}), read from {imported.layout}; "
        f"fingerprint {imported.fingerprint}"
    )
    for note in imported.notes:
        print_line(f"note: {note}")
    print_line(f"check it with: cicf data verify {benchmark.name} {dest}")
