"""What `cicf figure` shares: the runs to compare, the images to show, and progress."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeVar

import typer

from cicf.cli.options import words
from cicf.cli.show import error_console
from cicf.core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from cicf.data.domains import DomainDataset
    from cicf.experiment import LoadedRun

Runs = Annotated[
    list[Path], typer.Argument(metavar="RUN", help="Folders of runs, a column for each.")
]
Data = Annotated[
    str | None, typer.Option(help="Images to show instead of those that the runs are about.")
]
Root = Annotated[Path | None, typer.Option(help="The folder in which the images lie.")]
Labels = Annotated[
    str | None,
    typer.Option(help="Names of the runs, separated by commas; by default their methods."),
]
Seed = Annotated[int, typer.Option(help="The number that the choice of images follows from.")]


Item = TypeVar("Item")


class Shown(NamedTuple):
    """Holds images, and whether they are those that the runs were trained and tested on."""

    data: "DomainDataset"
    is_own: bool


def open_runs(
    paths: Sequence[Path], labels: str | None, *, checkpoint: Literal["last", "best"], device: str
) -> "dict[str, LoadedRun]":
    """Return the runs by what they are called, the names in the order of the folders."""
    from cicf.experiment import open_run

    for place, path in enumerate(paths):
        if path.resolve() in [other.resolve() for other in paths[:place]]:
            raise ConfigError(f"{path} is named twice; name every run once")
    opened = [open_run(path, at=checkpoint, device=device) for path in paths]
    if labels is None:
        names = _methods(paths, [run.config.method.name for run in opened])
    else:
        names = words(labels, "--labels")
    if len(set(names)) != len(paths):
        raise ConfigError(
            f"--labels {labels!r} are {len(set(names))} names for {len(paths)} runs; give every "
            "run a name of its own, separated by commas"
        )
    return dict(zip(names, opened, strict=True))


def load_shown(runs: "Mapping[str, LoadedRun]", data: str | None, root: Path | None) -> Shown:
    """Return the images of this name, or those of the runs, which then have to agree on them."""
    from cicf.config import DataConfig
    from cicf.data.fingerprint import fingerprint
    from cicf.experiment.data import load_data
    from cicf.report.chosen import check_agreement

    check_agreement(runs, must_share_data=data is None)
    (label, first), *_ = runs.items()
    own = first.config.data
    config = DataConfig(
        name=own.name if data is None else data, root=root, skips_unreadable=own.skips_unreadable
    )
    found = load_data(config, is_for_training=False, checks_images=False).data
    mark = fingerprint(found)
    if data is None and mark != first.setup.fingerprint:
        raise DataError(
            f"the images of {config.name} ({mark}) are not those that {label} is about "
            f"({first.setup.fingerprint}); bring them back, or name images with --data"
        )
    return Shown(found, all(mark == run.setup.fingerprint for run in runs.values()))


def named_domains(domains: str, data: "DomainDataset") -> tuple[str, ...]:
    """Return the domains of a list by commas, all of which have to be there."""
    found = words(domains, "--domains")
    for name in found:
        data.domain_id(name)
    return found


def counted(
    batches: Iterable[list[Item]], *, total: int, what: str, unit: str = "images"
) -> Iterator[Item]:
    """Yield the items of all batches, and show how many are done: a bar on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    console = error_console()
    if not console.is_terminal:
        console.print(f"{what}: {total} {unit}", soft_wrap=True)
    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        for batch in batches:
            yield from batch
            bar.advance(task, len(batch))


def _methods(paths: Sequence[Path], methods: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the methods, with the folder where a method is there twice."""
    places = [path.resolve() for path in paths]
    names = [place.name for place in places]
    return tuple(
        method
        if methods.count(method) == 1
        else f"{method} ({place.name if names.count(place.name) == 1 else place})"
        for method, place in zip(methods, places, strict=True)
    )
