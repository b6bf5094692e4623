"""`cicf figure differences`: how much better or worse than one of them runs are, with intervals."""

from typing import Annotated

import typer

from cicf.cli.figures import Output, command_line, print_files
from cicf.cli.table import SELECT, On, Parameters, Runs, Select, read_tables


def differences(
    runs: Runs,
    output: Output,
    compare: Annotated[
        str,
        typer.Option(
            metavar="ROW",
            help="A method, or a row by its label, to compare with.",
        ),
    ] = "erm",
    select: Select = "last",
    parameters: Parameters = "deployed",
    on: On = "test",
) -> None:
    """Draw differences to a row of the table, paired by domain and seed, with 95 % intervals.

    The numbers are those of `cicf table --compare`.
    """
    from cicf.report.compare import compared
    from cicf.report.differences_figure import save_differences
    from cicf.report.figures import check_output

    check_output(output)
    tables = read_tables(runs, select=SELECT[select], parameters=parameters, on=on)
    print_files(save_differences(compared(tables, compare), output, command=command_line()))
