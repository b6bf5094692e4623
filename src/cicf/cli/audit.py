"""`cicf audit`: how much predictions depend on what should not matter."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from cicf.cli.audit_show import show_confounded, show_images
from cicf.cli.figure_runs import Labels, open_runs
from cicf.cli.figures import MayDraw, command_line, print_files
from cicf.cli.inspect import Checkpoint, Device, Json
from cicf.cli.show import error_console
from cicf.core.errors import ConfigError

if TYPE_CHECKING:
    from cicf.data.confounded import Kind
    from cicf.experiment import LoadedRun
    from cicf.report.audit_subjects import Subjects

FAST_DIGITS, FAST_IMAGES = 60, 12
"""Images that are looked at with --fast."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Holds what a user wants to have audited, and how."""

    data: str | None
    root: Path | None
    domain: str | None
    images: tuple[Path, ...]
    masks: Path | None
    confounder: "Kind | None"
    most: int
    is_fast: bool
    output: Path | None
    is_json: bool

    @property
    def names_nothing(self) -> bool:
        """Tell whether the runs' own images are meant."""
        return self.data is None and not self.images


def audit(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN...", help="Folders of runs, to be compared with each other."),
    ],
    data: Annotated[
        str | None,
        typer.Option(
            help="The images, as for training; confounded for digits whose confounder is known. "
            "By default those that the runs were tested on."
        ),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The folder in which the data lie.")] = None,
    domain: Annotated[
        str | None, typer.Option(help="With --data, the only domain to look at.")
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="A folder of images without labels, or an image; may be given often."),
    ] = None,
    masks: Annotated[
        Path | None,
        typer.Option(help="A folder with a PNG for every image, named as it, object white."),
    ] = None,
    confounder: Annotated[
        Literal["colour", "background"] | None,
        typer.Option(help="On confounded: what is set; by default what the runs were trained on."),
    ] = None,
    most: Annotated[
        int, typer.Option(min=2, help="The largest number of images; of more, some are drawn.")
    ] = 200,
    output: MayDraw = None,
    labels: Labels = None,
    checkpoint: Checkpoint = "last",
    device: Device = "auto",
    fast: Annotated[bool, typer.Option("--fast", help="Look at a few images only.")] = False,
    json: Json = False,
) -> None:
    """Measure how much predictions depend on what should not matter.

    Digits with a known confounder: what do(confounder) and do(cause) change, at every strength.
    Any other images: what stays under changes of colour, light, sharpness, border, background.
    """
    from cicf.report.figures import check_output

    asked = Asked(
        *(data, root, domain, tuple(images or ()), masks, confounder),
        most=most,
        is_fast=fast,
        output=output,
        is_json=json,
    )
    if output is not None:
        check_output(output)
    loaded = open_runs(runs, labels, checkpoint=checkpoint, device=device)
    if _is_confounded(asked, list(loaded.values())):
        _audit_confounded(asked, loaded)
        return
    _audit_images(asked, loaded)


def _audit_confounded(asked: Asked, loaded: "dict[str, LoadedRun]") -> None:
    from cicf.report.audit import Responses
    from cicf.report.audit_confounded import (
        audited,
        digits_of,
        held_out_digits,
        responses,
        save_audit,
    )

    for option, value in (("--masks", asked.masks), ("--domain", asked.domain)):
        if value is not None:
            raise ConfigError(
                f"{option} {value} says nothing about the confounded digits, whose masks and "
                "confounders are known; leave it out"
            )
    kind = _kind(asked, list(loaded.values()))
    digits = held_out_digits(kind, most=FAST_DIGITS if asked.is_fast else None)
    classifiers = {name: digits_of(run) for name, run in loaded.items()}
    found = []
    with _bar(10 * len(loaded)) as (bar, task):
        for name, classify in classifiers.items():
            for told in responses(classify, digits):
                if isinstance(told, Responses):
                    found.append(audited(name, told, kind))
                else:
                    bar.advance(task)
    files: tuple[Path, ...] = ()
    if asked.output is not None:
        files = save_audit(found, asked.output, kind=kind, command=command_line())
    show_confounded(found, kind, files, as_json=asked.is_json)
    _print_files(files, asked)


def _audit_images(asked: Asked, loaded: "dict[str, LoadedRun]") -> None:
    from cicf.report.audit_images import Answers, answers, audited, check_labels, variants
    from cicf.report.audit_pictures import save_effects, save_flips

    if asked.confounder is not None:
        raise ConfigError(
            f"--confounder {asked.confounder} belongs to --data confounded, whose confounder is "
            "known; leave it out"
        )
    subjects = _subjects(asked, list(loaded.values()))
    for run in loaded.values():
        check_labels(run, subjects)
    total = len(subjects)
    subjects = subjects.some(min(asked.most, FAST_IMAGES) if asked.is_fast else asked.most)
    chosen = variants(subjects, ranks=(0, 2) if asked.is_fast else (0, 1, 2))
    found = []
    with _bar(len(subjects) * len(loaded)) as (bar, task):
        for name, run in loaded.items():
            for told in answers(run, subjects, chosen):
                if isinstance(told, Answers):
                    found.append(audited(name, told, chosen, run.setup.classes))
                else:
                    bar.advance(task)
    files: tuple[Path, ...] = ()
    if asked.output is not None:
        files = save_effects(found, asked.output, command=command_line())
        files += save_flips(found, loaded, subjects, chosen, asked.output)
    show_images(found, subjects.names, total, files, as_json=asked.is_json)
    _print_files(files, asked)


def _subjects(asked: Asked, runs: "Sequence[LoadedRun]") -> "Subjects":
    from cicf.config import DataConfig
    from cicf.report.audit_subjects import files, named_data, own_images

    if asked.domain is not None and asked.data is None:
        raise ConfigError(f"--domain {asked.domain!r} goes with --data; name the data too")
    if asked.data is not None:
        found = named_data(DataConfig(name=asked.data, root=asked.root, target=asked.domain))
    elif asked.images:
        found = files(asked.images)
    else:
        found = own_images(runs, asked.root)
    return found if asked.masks is None else found.with_masks(asked.masks)


def _is_confounded(asked: Asked, runs: "Sequence[LoadedRun]") -> bool:
    from cicf.data.confounded import CONFOUNDED

    if asked.data is not None and asked.images:
        raise ConfigError(
            f"--data {asked.data!r} and --images {asked.images[0]} exclude each other; name images "
            "with labels, or without"
        )
    if asked.names_nothing and asked.root is None:
        return all(run.config.data.is_confounded for run in runs)
    return asked.data == CONFOUNDED and asked.root is None


def _kind(asked: Asked, runs: "Sequence[LoadedRun]") -> "Kind":
    """Return the confounder to set: the one asked for, or that which the runs were trained on."""
    if asked.confounder is not None:
        return asked.confounder
    kinds = {run.config.data.confounder for run in runs} - {None}
    if len(kinds) > 1:
        raise ConfigError(
            "the runs were trained on different confounders, colour and background; choose the one "
            "to set with --confounder"
        )
    return next(iter(kinds), None) or "colour"


@contextmanager
def _bar(total: int) -> Iterator[tuple[Progress, TaskID]]:
    """Show a bar on a terminal, and nothing elsewhere."""
    console = error_console()
    columns = (TextColumn("audit"), BarColumn(bar_width=20), MofNCompleteColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield bar, bar.add_task("audit", total=total)


def _print_files(files: Sequence[Path], asked: Asked) -> None:
    if files and not asked.is_json:
        print_files(files)
