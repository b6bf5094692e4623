"""`cicf table`: what runs came to, beside what the paper prints."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cicf.cli.show import print_line

if TYPE_CHECKING:
    from cicf.results import entries
    from cicf.results.record import Choice
    from cicf.results.table import Table

SELECT: "dict[str, Choice]" = {"last": "last", "source-val": "best", "oracle": "oracle"}


Runs = Annotated[
    list[Path],
    typer.Argument(metavar="RUNS", help="Folders of runs, or folders that hold some."),
]
Select = Annotated[
    Literal["last", "source-val", "oracle"],
    typer.Option(help="The epoch: the last, the best on source validation, or on the target."),
]
Parameters = Annotated[
    Literal["deployed", "theta", "theta_dagger"],
    typer.Option(help="Show what each run deploys, or θ of all, or θ† of all that have it."),
]
On = Annotated[
    Literal["test", "validation"],
    typer.Option(help="Show the target, or source validation, to choose by without a look."),
]


def table(
    runs: Runs,
    format_: Annotated[
        Literal["text", "markdown", "latex", "csv", "json", "html"],
        typer.Option("--format", help="How the table is written."),
    ] = "text",
    select: Select = "last",
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="ROW",
            help="A method, or the label of a row, to compare the others with, run by run.",
        ),
    ] = None,
    parameters: Parameters = "deployed",
    on: On = "test",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write, instead of printing.")
    ] = None,
) -> None:
    """Tabulate finished runs by method and domain, beside the values of the paper.

    Runs of different data, protocols or networks never share a table. Runs that are not shown are
    named on the error stream.
    """
    from cicf.core.files import write_text
    from cicf.report.compare import compared
    from cicf.report.outputs import check_place
    from cicf.report.tables import render

    if output is not None:
        check_place(output)
    tables = read_tables(runs, select=SELECT[select], parameters=parameters, on=on)
    text = render(tables if compare is None else compared(tables, compare), format_)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_text(output, text)
    print_line(f"wrote {output}")


def print_tables(runs: Sequence[Path]) -> None:
    """Print the table of finished runs as text, as the command does without options."""
    from cicf.report.tables import render

    typer.echo(render(read_tables(runs), "text"), nl=False)


def read_tables(
    runs: Sequence[Path],
    *,
    select: "Choice" = "last",
    parameters: "entries.Chosen" = "deployed",
    on: "entries.On" = "test",
) -> "tuple[Table, ...]":
    """Return the tables, and name on the error stream what is in none."""
    from cicf.results.runs import read_runs
    from cicf.results.tabulate import make_tables

    read = read_runs(runs)
    _print_skipped(read.skipped)
    made = make_tables(read.found, select=select, parameters=parameters, on=on)
    _print_skipped(made.skipped)
    return made.tables


def _print_skipped(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        typer.echo(f"not shown: {sentence}", err=True)
