"""`cicf cost`: what runs took, as the paper's paragraph on cost has it."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicf.cli.figures import MayDraw, command_line, print_files
from cicf.cli.inspect import Json
from cicf.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from cicf.report.cost import Cost, CostTable

BESIDE = 3
"""Runs that fit beside each other."""


def cost(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN", help="Folders of runs, or folders that hold some."),
    ],
    output: MayDraw = None,
    json: Json = False,
) -> None:
    """Show the seconds of each phase, clustering's share, and peak memory, beside ERM's run.

    Runs of different data, protocols, networks or image sizes never share a table.
    """
    from cicf.report.cost import cost_tables
    from cicf.results.runs import read_runs

    if output is not None:
        from cicf.report.figures import check_output

        check_output(output)
    read = read_runs(runs)
    for sentence in read.skipped:
        typer.echo(f"not shown: {sentence}", err=True)
    tables = cost_tables(read.found)
    if json:
        print_json([_plain(table) for table in tables])
    else:
        for table in tables:
            _print(table)
    if output is not None:
        from cicf.report.cost_figure import save_costs

        files = save_costs(tables, output, command=command_line())
        if not json:
            print_files(files)


def _plain(table: "CostTable") -> dict[str, object]:
    costs = [
        {
            **each.model_dump(mode="json"),
            "total": each.total,
            "per_epoch": each.per_epoch,
            "clustering_percent": each.clustering_percent,
        }
        for each in table.costs
    ]
    return {**table.model_dump(mode="json"), "costs": costs}


def _print(table: "CostTable") -> None:
    """Print a few runs beside each other, and the next below them."""
    for start in range(0, len(table.costs), BESIDE):
        shown = table.costs[start : start + BESIDE]
        rows = [
            [phase, *(_phase(each, phase) for each in shown)]
            for phase in table.phases
            if any(phase in each.seconds for each in shown)
        ]
        for name, said in SUMMARY.items():
            found = [said(each) for each in shown]
            if any(found):
                rows.append([name, *found])
        columns = ["", *(each.label for each in shown)]
        print_table(f"cost, {table.title}", columns, rows, as_json=False)
    for note in table.footnotes:
        print_line(f"- {note}")


def _phase(cost: "Cost", phase: str) -> str:
    if phase not in cost.seconds:
        return ""
    share = 100 * cost.seconds[phase] / cost.total
    return f"{_seconds(cost.seconds[phase])}, {share:.1f} %"


def _memory(cost: "Cost") -> str:
    return "" if cost.peak_memory is None else _size(cost.peak_memory)


SUMMARY: "dict[str, Callable[[Cost], str]]" = {
    "in all": lambda cost: _seconds(cost.total),
    "epochs": lambda cost: str(cost.epochs),
    "an epoch": lambda cost: _seconds(cost.per_epoch),
    "an epoch, × ERM": lambda cost: _ratio(cost.times_erm),
    "memory": _memory,
    "memory, × ERM": lambda cost: _ratio(cost.memory_times_erm),
}
"""What is said of a run below its phases."""


def _seconds(value: float) -> str:
    return f"{value:.0f} s" if value >= 100 else f"{value:.3g} s"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
