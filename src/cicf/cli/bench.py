"""`cicf bench`: a table of the paper in one command."""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console

from cicf.cli.bars import watched
from cicf.cli.options import Values, overrides
from cicf.cli.show import error_console, print_line
from cicf.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cicf.bench import Ended, Estimate, Job

FAILED = 1
METHODS = "erm,maml,cicf"
Root = Annotated[Path | None, typer.Option(help="The folder in which DATA lies.")]


def bench(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="demo, a benchmark such as pacs, or a folder.")
    ],
    root: Root = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, separated by commas; by default erm,maml,cicf.")
    ] = None,
    augment: Annotated[
        str | None,
        typer.Option(help="basic, autoaugment, none, separated by commas; by default basic."),
    ] = None,
    targets: Annotated[
        str, typer.Option(help="The domains to hold out in turn, separated by commas, or all.")
    ] = "all",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each, with seeds 0, 1, …")] = 6,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at the same time.")] = 1,
    preset: Annotated[
        str, typer.Option(help="recommended, paper, paper-literal or cpu; see cicf preset.")
    ] = "recommended",
    protocol: Annotated[
        Literal["leave-one-domain-out", "single-source"],
        typer.Option(help="Hold each domain out, or train on each alone."),
    ] = "leave-one-domain-out",
    keep_epochs: Annotated[
        bool,
        typer.Option("--keep-epochs", help="Keep the networks of all epochs, for an oracle."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="The folder for the runs; by default runs/DATA.")
    ] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="Any option, as for train; may be repeated.")
    ] = None,
    config: Annotated[Path | None, typer.Option(help="A TOML file with options.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Run every method on every domain and seed, and print the table.

    What has ended is not run again, what was cut off goes on. Started twice, the work is shared.
    """
    from cicf.bench import Grid, estimate, execute, make_jobs
    from cicf.data.fingerprint import fingerprint
    from cicf.experiment import recipe
    from cicf.experiment.data import load_data

    named = {"data.root": root, "keeps_epochs": keep_epochs or None}
    over = overrides(named=named, settings=set_ or [], file=config)
    grid = Grid(
        data=data,
        methods=_words(methods or _given(over, "method", "name") or METHODS, "--methods"),
        augments=_words(augment or _given(over, "data", "augment") or "basic", "--augment"),
        domains=() if targets == "all" else _words(targets, "--targets"),
        seeds=seeds,
        protocol=protocol,
        preset=preset,
    )
    chosen = recipe(data, over, preset=preset)
    loaded = load_data(chosen.data, cache_root=chosen.machine.cache_root())
    where = out or Path("runs") / Path(data).resolve().name
    todo = make_jobs(
        grid,
        over,
        known=loaded.data.domains,
        fingerprint=fingerprint(loaded.data),
        out=where,
    )
    left = [job for job in todo if not job.folder.is_finished]
    costs = estimate(left, loaded)
    console = error_console()
    _print_plan(console, todo, left, costs, num_jobs=jobs, where=where)
    if costs and all(cost.problem is not None for cost in costs.values()):
        raise ConfigError(f"none of the runs can be done: {next(iter(costs.values())).problem}")
    if dry_run:
        return
    weights = {job.label: costs[job.kind].seconds for job in left}
    with closing(execute(left, num_jobs=jobs, logs=where / "logs")) as events:
        failures = watched(events, weights, console)
    _print_end(console, todo, failures, where)


def _given(over: Values, section: str, name: str) -> str | None:
    """Return what a file or a setting says, where no option does."""
    found = over.get(section)
    value = found.get(name) if isinstance(found, dict) else None
    return None if value is None else str(value)


def _words(text: str, option: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise ConfigError(f"{option} {text!r} names nothing; separate names by commas")
    return found


def _print_plan(
    console: Console,
    todo: Sequence["Job"],
    left: Sequence["Job"],
    costs: dict[str, "Estimate"],
    *,
    num_jobs: int,
    where: Path,
) -> None:
    begun = sum(job.folder.has_run for job in left)
    console.print(
        f"{len(todo)} runs in {where}: {len(todo) - len(left)} have ended, {begun} were begun, "
        f"{len(left) - begun} are to start",
        soft_wrap=True,
    )
    for kind, cost in costs.items():
        said = f"cannot run: {cost.problem}"
        if cost.problem is None:
            said = (
                f"{cost.steps} steps of {cost.seconds_per_step:.3g} s (measured now): "
                f"{_time(cost.seconds)} a run, evaluation not counted"
            )
        console.print(f"  {kind}: {said}", soft_wrap=True)
    if left:
        seconds = sum(costs[job.kind].seconds for job in left) / num_jobs
        size = sum(costs[job.kind].bytes for job in left)
        there = next(each for each in [where, *where.absolute().parents] if each.exists())
        free = shutil.disk_usage(there).free
        console.print(
            f"about {_time(seconds)} if {num_jobs} at a time do not slow each other down; "
            f"{_size(size)} of disk, {_size(free)} are free",
            soft_wrap=True,
        )


def _print_end(
    console: Console, todo: Iterable["Job"], failures: Sequence["Ended"], where: Path
) -> None:
    from cicf.cli.table import print_tables

    damaged = {job.label: _damage(job) for job in todo if job.folder.is_finished}
    ended = [job.folder.path for job in todo if job.label in damaged and damaged[job.label] is None]
    if ended:
        print_tables(ended)
        print_line(f"again, and in other formats: cicf table {where} --format latex")
    for each in failures:
        console.print(f"failed: {each.job.label}: {each.problem}", soft_wrap=True)
        console.print(f"  log: {each.log}", soft_wrap=True)
    for label, problem in damaged.items():
        if problem is not None:
            console.print(f"failed: {label}: {problem}", soft_wrap=True)
    if failures or any(damaged.values()):
        raise typer.Exit(FAILED)


def _damage(job: "Job") -> str | None:
    """Return why the record of a run that has ended cannot be read; None if it can."""
    try:
        job.folder.record()
    except DataError as error:
        return str(error)
    return None


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
