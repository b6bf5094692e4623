"""How figures look, and how they are stored: vector and pixels, beside the data they show."""

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cicf.core import ConfigError
from cicf.core.files import replacing, write_text
from cicf.report.outputs import check_place

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
"""Of Okabe and Ito, which the colour-blind can tell apart, in an order that greys well."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)), (0, (7, 3)))
"""Marker and line tell series apart as well, where colours cannot."""
ENDINGS = (".pdf", ".svg", ".png")
_STYLE: dict[str, object] = {
    "font.family": "DejaVu Sans",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "legend.frameon": False,
    "savefig.dpi": 200,
    # Letters as letters in PDF, so that they can be searched, and as shapes in SVG, so that they
    # look the same where the font is absent.
    "pdf.fonttype": 42,
    "svg.fonttype": "path",
    # The same figure is the same file.
    "svg.hashsalt": "cicf",
    # A dollar in the name of a class is a dollar.
    "text.parse_math": False,
}


@contextmanager
def styled(width: float, height: float) -> Iterator[Figure]:
    """Give a figure of this size in inches, to be drawn and saved while the style holds."""
    with style.context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save_figure(
    figure: Figure,
    output: Path,
    *,
    head: Sequence[str],
    rows: Sequence[Sequence[object]],
    command: str,
) -> tuple[Path, ...]:
    """Write a figure as PDF, SVG and PNG and its data as CSV; return the files.

    All have the name of `output`, whose ending says nothing. The command that makes the figure
    again is kept inside of the pictures.
    """
    stem = check_output(output)
    files = tuple(stem.with_name(stem.name + ending) for ending in ENDINGS)
    titles = ({"Subject": command, "CreationDate": None}, {"Description": command, "Date": None})
    for file, metadata in zip(files, (*titles, {"Description": command}), strict=True):
        with replacing(file) as temporary:
            figure.savefig(temporary, format=file.suffix[1:], metadata=metadata)
    return (*files, save_rows(output, head=head, rows=rows))


def save_rows(output: Path, *, head: Sequence[str], rows: Sequence[Sequence[object]]) -> Path:
    """Write rows as CSV under the name of `output`, and return the file."""
    stem = check_output(output)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    file = stem.with_name(stem.name + ".csv")
    write_text(file, text.getvalue())
    return file


def check_output(output: Path) -> Path:
    """Return the name that all files of a figure share, or refuse one that hides a run's files."""
    is_known = output.suffix.lower() in (*ENDINGS, ".csv")
    stem = output.with_suffix("") if is_known else output
    if not stem.name or stem.is_dir():
        raise ConfigError(
            f"-o {output} is a folder; name the figure, for example {output / 'figure'}"
        )
    check_place(output)
    return stem
