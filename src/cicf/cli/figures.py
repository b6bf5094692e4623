"""What commands that draw have in common: the command that draws again, and the files it made."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cicf.cli.show import print_line

Output = Annotated[
    Path,
    typer.Option(
        "--output", "-o", help="The name of the figure; it is written as PDF, SVG, PNG and CSV."
    ),
]
MayDraw = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", help="The name of a figure, if you want one: PDF, SVG, PNG and CSV."
    ),
]


def command_line() -> str:
    """Return this command as one would type it again."""
    return shlex.join(["cicf", *sys.argv[1:]])


def print_files(files: Sequence[Path]) -> None:
    """Print what was written, and the command that does it again."""
    print_line(f"wrote {', '.join(map(str, files))}")
    print_line(f"again: {command_line()}")
