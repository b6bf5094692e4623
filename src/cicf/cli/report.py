"""`cicf report`: one page about runs, which stands by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicf.cli.figures import command_line
from cicf.cli.show import error_console, print_json, print_line
from cicf.core.errors import ConfigError

if TYPE_CHECKING:
    from cicf.report.page import Section
    from cicf.report.page_views import Views

ENDINGS = (".html", ".htm")


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUNS", help="Folders of runs, or folders that hold some."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write, .html.")],
    title: Annotated[str, typer.Option(help="What stands above the page.")] = "Results",
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="ROW",
            help="A method, or the label of a row, to compare the others with; by default ERM.",
        ),
    ] = None,
    networks: Annotated[
        bool,
        typer.Option(
            "--networks/--no-networks", help="Look into the networks, which takes their weights."
        ),
    ] = True,
    images: Annotated[
        int, typer.Option(min=1, help="Images of each tested domain in the gallery.")
    ] = 6,
    root: Annotated[
        Path | None, typer.Option(help="The folder in which the images of the runs lie.")
    ] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="Look at one target, two images and few points.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON.")] = False,
) -> None:
    """Write one HTML page about finished runs, to be looked at in a browser.

    It has the tables with the paper's values, learning curves, Grad-CAMs and t-SNE where weights
    and images are at hand, costs, and where every number comes from. It needs no network.
    """
    _check_output(output)
    import cicf
    from cicf.core.files import write_text
    from cicf.report.page import make_sections, render_page
    from cicf.results.runs import read_runs

    read = read_runs(runs)
    made = make_sections(read.found, against=compare)
    skipped = (*read.skipped, *made.skipped)
    for sentence in skipped:
        typer.echo(f"not shown: {sentence}", err=True)
    views = _views(made.sections, images=images, root=root, is_fast=fast, is_wanted=networks)
    text = render_page(
        made.sections,
        views,
        title=title,
        command=command_line(),
        version=cicf.__version__,
        skipped=skipped,
    )
    write_text(output, text)
    _print_written(output, made.sections, views, as_json=json)


def _check_output(output: Path) -> None:
    from cicf.report.outputs import check_place

    if output.suffix.lower() not in ENDINGS:
        raise ConfigError(f"-o {output} must end in .html, so that a browser opens it")
    if output.is_dir():
        raise ConfigError(f"-o {output} is a folder; name the page, for example report.html")
    check_place(output)


def _views(
    sections: "Sequence[Section]", *, images: int, root: Path | None, is_fast: bool, is_wanted: bool
) -> "list[Views]":
    """Return what is seen inside of the networks, and tell meanwhile how far it is."""
    from cicf.report.page_views import Views

    if not is_wanted:
        return [Views(missing=("networks are left out, by --no-networks",)) for _ in sections]
    from cicf.report.page_networks import FAST, Amount, network_views

    amount = FAST if is_fast else Amount(images=images)
    found: list[Views] = []
    console = error_console()
    with console.status("") as status:
        for section in sections:
            for told in network_views(section, amount, root=root):
                if isinstance(told, Views):
                    found.append(told)
                elif console.is_terminal:
                    status.update(told)
                else:
                    console.print(told, soft_wrap=True)
    for sentence in (sentence for each in found for sentence in each.missing):
        console.print(f"missing: {sentence}", soft_wrap=True)
    return found


def _print_written(
    output: Path, sections: "Sequence[Section]", views: "Sequence[Views]", *, as_json: bool
) -> None:
    size = output.stat().st_size
    num_runs = sum(len(each.facts) for each in sections)
    missing = [sentence for each in views for sentence in each.missing]
    if as_json:
        print_json(
            {
                "file": str(output),
                "bytes": size,
                "runs": num_runs,
                "tables": [each.table.title for each in sections],
                "missing": missing,
            }
        )
        return
    tables = "1 table" if len(sections) == 1 else f"{len(sections)} tables"
    print_line(f"wrote {output}, {size / 1000:,.0f} kB; finished runs: {num_runs}, in {tables}")
    print_line(f"again: {command_line()}")
