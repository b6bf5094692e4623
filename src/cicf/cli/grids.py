"""What commands that run a grid share: the words of a list, the plan, the runs, the failures."""

import shutil
from collections.abc import Iterable, Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from rich.console import Console

from cicf.cli.bars import watched
from cicf.cli.options import Values
from cicf.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cicf.bench import Ended, Estimate, Job
    from cicf.experiment.data import Loaded

FAILED = 1
Data = Annotated[
    str,
    typer.Argument(metavar="DATA", help="demo, confounded, a benchmark such as pacs, or a folder."),
]
Root = Annotated[Path | None, typer.Option(help="The folder in which DATA lies.")]
Targets = Annotated[
    str, typer.Option(help="The domains to hold out in turn, separated by commas, or all.")
]
Jobs = Annotated[int, typer.Option(min=1, help="Runs at the same time.")]
Preset = Annotated[
    str, typer.Option(help="recommended, paper, paper-literal or cpu; see cicf preset.")
]
Out = Annotated[Path | None, typer.Option(help="The folder for the runs; by default runs/DATA.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", help="Any option, as for train; may be repeated.")
]
ConfigFile = Annotated[Path | None, typer.Option(help="A TOML file with options.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")]


class Done(NamedTuple):
    """Holds what the runs of a grid came to: folders to read, and what went wrong."""

    ended: list[Path]
    failures: "list[Ended]"
    damaged: dict[str, str]
    """Why a run that has ended cannot be read, by its label."""


def given(over: Values, section: str, name: str) -> str | None:
    """Return what a file or a setting says, where no option does."""
    found = over.get(section)
    value = found.get(name) if isinstance(found, dict) else None
    return None if value is None else str(value)


def runs_folder(data: str, out: Path | None) -> Path:
    """Return where the runs of some data live."""
    return out or Path("runs") / Path(data).resolve().name


def executed(
    todo: "Sequence[Job]",
    loaded: "Loaded",
    console: Console,
    *,
    num_jobs: int,
    where: Path,
    dry_run: bool,
) -> Done | None:
    """Print the plan and do the runs that are missing; None if the plan was all that is wanted."""
    from cicf.bench import estimate, execute

    left = [job for job in todo if not job.folder.is_finished]
    costs = estimate(left, loaded)
    _print_plan(console, todo, left, costs, num_jobs=num_jobs, where=where)
    if costs and all(cost.problem is not None for cost in costs.values()):
        raise ConfigError(f"none of the runs can be done: {next(iter(costs.values())).problem}")
    if dry_run:
        return None
    weights = {job.label: costs[job.kind].seconds for job in left}
    with closing(execute(left, num_jobs=num_jobs, logs=where / "logs")) as events:
        failures = watched(events, weights, console)
    return _done(todo, failures)


def print_failures(console: Console, done: Done) -> None:
    """Name the runs that failed, with their logs, and end the command if there are any."""
    for each in done.failures:
        console.print(f"failed: {each.job.label}: {each.problem}", soft_wrap=True)
        console.print(f"  log: {each.log}", soft_wrap=True)
    for label, problem in done.damaged.items():
        console.print(f"failed: {label}: {problem}", soft_wrap=True)
    if done.failures or done.damaged:
        raise typer.Exit(FAILED)


def _done(todo: "Iterable[Job]", failures: "list[Ended]") -> Done:
    finished = [(job, _damage(job)) for job in todo if job.folder.is_finished]
    ended = [job.folder.path for job, problem in finished if problem is None]
    damaged = {job.label: problem for job, problem in finished if problem is not None}
    return Done(ended, failures, damaged)


def _damage(job: "Job") -> str | None:
    """Return why the record of a run that has ended cannot be read; None if it can."""
    try:
        job.folder.record()
    except DataError as error:
        return str(error)
    return None


def _print_plan(
    console: Console,
    todo: "Sequence[Job]",
    left: "Sequence[Job]",
    costs: "dict[str, Estimate]",
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


def _time(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e8 else f"{count / 1e6:.1f} MB"
