"""`cicf ablate`: accuracy against one option, as in the paper's figure 3."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cicf.cli.figures import command_line, print_files
from cicf.cli.grids import (
    ConfigFile,
    Data,
    DryRun,
    Jobs,
    Out,
    Preset,
    Root,
    Settings,
    Targets,
    executed,
    given,
    print_failures,
    runs_folder,
)
from cicf.cli.options import Values, overrides, words
from cicf.cli.show import error_console, print_json, print_line, print_table
from cicf.core.errors import ConfigError, ResultError
from cicf.results.axes import AXES, Over

if TYPE_CHECKING:
    from cicf.bench import Job
    from cicf.experiment.data import Loaded
    from cicf.results.curves import Ablation, Curve, Point
    from cicf.results.table import Interval

SEEDS = 3
FAST: Values = {
    "data": {"validation": 0.8},
    "epochs": 1,
    "inner": {"size": 24},
    "outer": {"size": 48},
}
"""What `--fast` lays below the options that are given."""
FAST_VALUES = {
    "batch-size": "12,24",
    "clusters": "1,3",
    "cut": "input,Z_0",
    "sampling": "random,clusters",
    "order": "1,2",
    "alpha": "0.05,0.1",
    "alpha-schedule": "constant,cosine",
    "bound": "0.01,inf",
    "curvature": "0.5,1",
}


def ablate(
    data: Data,
    over: Annotated[Over, typer.Option(help="What is varied; all else stays as it is.")],
    values: Annotated[
        str | None,
        typer.Option(
            help="The values, separated by commas; by default M 64,128,256, K 1,2,3,5, "
            "all cuts of the network, all ways to sample, both orders, α 0.02 to 0.5, both "
            "schedules of α, bounds 0.005 to inf, a quarter to all of the curvature."
        ),
    ] = None,
    method: Annotated[str, typer.Option(help="The method whose option is varied.")] = "cicf",
    baseline: Annotated[
        Literal["erm", "none"], typer.Option(help="What is drawn as a line across; none for none.")
    ] = "erm",
    root: Root = None,
    targets: Targets = "all",
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Runs of each, with seeds 0, 1, …; by default 3.")
    ] = None,
    jobs: Jobs = 1,
    preset: Preset = "recommended",
    out: Out = None,
    set_: Settings = None,
    config: ConfigFile = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="The name of the figure, which is written as PDF, SVG, PNG and CSV; by default "
            "ablation-… in the folder for the runs.",
        ),
    ] = None,
    dry_run: DryRun = False,
    plot_only: Annotated[
        bool,
        typer.Option(
            "--plot-only",
            help="Run nothing and read no images: draw what has ended in the folder for the runs.",
        ),
    ] = False,
    fast: Annotated[
        bool,
        typer.Option(
            "--fast",
            help="One target, one seed, two values, one epoch on a fifth of the images: to try it.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Vary one option of CICF, and draw the accuracy on unseen domains against it.

    What has ended is not run again, whoever ran it: runs of cicf bench with the same options count.
    """
    from cicf.report.figures import check_output

    where = runs_folder(data, out)
    figure = output or where / f"ablation-{over}"
    check_output(figure)
    if plot_only:
        _show(_found([where], over), figure, as_json=json)
        return
    own = overrides(named={"data.root": root}, settings=set_ or [], file=config)
    _check_free(own, over)
    given_values = values if values is not None or not fast else FAST_VALUES[over]
    todo, loaded = _jobs(
        data,
        over,
        own,
        method=method,
        baseline=baseline,
        values=None if given_values is None else words(given_values, "--values"),
        targets=targets,
        seeds=seeds,
        preset=preset,
        where=where,
        fast=fast,
    )
    console = error_console()
    done = executed(todo, loaded, console, num_jobs=jobs, where=where, dry_run=dry_run)
    if done is None:
        return
    try:
        _show(_found(done.ended, over), figure, as_json=json)
    except ResultError:
        # Too few runs have ended, and why is said below.
        print_failures(console, done)
        raise
    print_failures(console, done)


def _check_free(over: Values, varied: Over) -> None:
    """Refuse a value for what the ablation goes through."""
    option = AXES[varied].option
    value = given(over, *option.split("."))
    if value is not None:
        raise ConfigError(
            f"{option}={value} cannot be set, because --over {varied} varies it; use --values"
        )


def _jobs(
    data: str,
    over: Over,
    own: Values,
    *,
    method: str,
    baseline: str,
    values: Sequence[str] | None,
    targets: str,
    seeds: int | None,
    preset: str,
    where: Path,
    fast: bool,
) -> "tuple[list[Job], Loaded]":
    """Return the runs, all of whose values have been checked, and the images."""
    from cicf.bench import Grid, make_jobs
    from cicf.bench.variants import axis_values, check_batch_sizes, make_variants
    from cicf.data.fingerprint import fingerprint
    from cicf.experiment import merged, recipe
    from cicf.experiment.data import load_data

    laid = merged(FAST, own) if fast else own
    chosen = recipe(data, merged(laid, {"method": {"name": method}}), preset=preset)
    wanted = axis_values(AXES[over], values, chosen.model.name)
    loaded = load_data(chosen.data, cache_root=chosen.machine.cache_root())
    domains = () if targets == "all" else words(targets, "--targets")
    if fast and not domains:
        domains = loaded.data.domains[:1]
    num_classes = len(loaded.data.classes)
    variants = make_variants(AXES[over], wanted, config=chosen, num_classes=num_classes)
    grid = Grid(
        data=data,
        methods=tuple(name for name in (method, baseline) if name != "none"),
        augments=(given(own, "data", "augment") or "basic",),
        domains=domains,
        seeds=seeds or (1 if fast else SEEDS),
        preset=preset,
        variants={method: variants},
    )
    found = make_jobs(
        grid,
        laid,
        known=loaded.data.domains,
        fingerprint=fingerprint(loaded.data),
        out=where,
    )
    if over == "batch-size":
        check_batch_sizes(found, loaded.data)
    return found, loaded


def _found(folders: Sequence[Path], over: Over) -> "Ablation":
    from cicf.report.ablation import ablation
    from cicf.results.runs import read_runs

    if not folders:
        raise ResultError("no run has ended")
    read = read_runs(folders)
    found = ablation(read.found, over)
    for sentence in (*read.skipped, *found.skipped):
        typer.echo(f"not shown: {sentence}", err=True)
    return found


def _show(found: "Ablation", figure: Path, *, as_json: bool) -> None:
    from cicf.report.ablation_figure import save_ablation

    files = save_ablation(found, figure, command=command_line())
    if as_json:
        print_json({**found.model_dump(mode="json"), "files": list(map(str, files))})
        return
    for curve in found.curves:
        _print_curve(curve, found)
    print_files(files)


def _print_curve(curve: "Curve", found: "Ablation") -> None:
    lines = [*curve.points, *([curve.baseline] if curve.baseline else [])]
    columns = [found.option, *curve.domains]
    if len(curve.domains) > 1:
        columns.append("mean")
    columns.append("error")
    if curve.baseline is not None:
        columns.append(f"minus {curve.baseline.value}")
    rows = [_row(point, curve)[: len(columns)] for point in lines]
    print_table(f"accuracy in %, {curve.title}", columns, rows, as_json=False)
    for note in curve.footnotes:
        print_line(f"- {note}")


def _row(point: "Point", curve: "Curve") -> list[str]:
    means = [sum(each.values()) / len(each) for each in point.accuracies.values()]
    shown = [str(point.value), *(f"{mean:.1f}" for mean in means)]
    if len(curve.domains) > 1:
        shown.append(f"{point.mean.mean:.1f}")
    shown.append("" if point.error is None else f"± {point.error:.1f}")
    difference = point.difference
    shown.append("" if difference is None else f"{difference.mean:+.1f} {_ends(difference)}")
    return shown


def _ends(interval: "Interval") -> str:
    if interval.low is None or interval.high is None:
        return ""
    return f"[{interval.low:+.1f}, {interval.high:+.1f}]"
