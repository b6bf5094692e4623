"""`cicf sampling`: the paper's analysis of clustering-then-sampling, on any data."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from cicf.cli.figures import MayDraw, command_line, print_files
from cicf.cli.grids import Data, Preset, Root, Settings
from cicf.cli.inspect import Checkpoint, Json
from cicf.cli.options import config_of, overrides, words
from cicf.cli.show import error_console, print_json, print_line, print_table
from cicf.core.errors import ConfigError

if TYPE_CHECKING:
    from cicf.config import RunConfig
    from cicf.experiment import LoadedRun
    from cicf.report.sampling import Answer, Event, Question


def sampling(
    data: Data,
    root: Root = None,
    target: Annotated[
        str | None, typer.Option(help="The domain that is held out, and not looked at.")
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(help="A run whose trained network is looked at, on its own training images."),
    ] = None,
    checkpoint: Checkpoint = "last",
    m: Annotated[
        str | None,
        typer.Option("--m", help="Batch sizes M, separated by commas, such as 16,32,64."),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("--k", help="Clusters per class K, separated by commas; 1,2,3,5."),
    ] = None,
    draws: Annotated[
        int | None, typer.Option(min=2, help="Batches that are drawn of each kind; 200.")
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(min=2, help="Images that gradients are taken of, at most; 512."),
    ] = None,
    features: Annotated[
        Literal["pixels", "network"] | None,
        typer.Option(help="What is clustered: images at low resolution, or network features."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The network, as for train; by default the recipe's.")
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="What it starts from: imagenet, none, or a file.")
    ] = None,
    preset: Preset = "recommended",
    seed: Annotated[
        int | None, typer.Option(help="A number that everything random follows from.")
    ] = None,
    set_: Settings = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")] = None,
    fast: Annotated[
        bool, typer.Option("--fast", help="64 images and few draws: a look, within seconds.")
    ] = False,
    output: MayDraw = None,
    json: Json = False,
) -> None:
    """Measure what clustering-then-sampling gives: the gap E, standard errors, cosines.

    Eq. 15 and 19 from per-sample gradients, beside the errors of batches that are really drawn.
    """
    from cicf.experiment import open_run
    from cicf.report.figures import check_output
    from cicf.report.sampling import answered

    if output is not None:
        check_output(output)
    question = _question(m, k, draws=draws, images=images, seed=seed, is_fast=fast)
    named = {
        "data.root": root,
        "data.target": target,
        "clusters.source": features,
        "model.name": model,
        "model.weights": weights,
        "machine.device": device,
        "seed": seed,
    }
    if run is None:
        config = config_of(data, named=named, settings=set_ or [], file=None, preset=preset)
        loaded = None
    else:
        loaded = open_run(run, at=checkpoint, device=device or "auto")
        config = _of_run(loaded, data, {**named, "seed": None}, set_ or [])
    answer = _watched(answered(config, question, run=loaded))
    files = [] if output is None else _drawn(answer, output)
    if json:
        print_json({**_values(answer, config, question, run), "files": list(map(str, files))})
        return
    _print(answer, config, question, run)
    if files:
        print_files(files)


def _question(
    m: str | None,
    k: str | None,
    *,
    draws: int | None,
    images: int | None,
    seed: int | None,
    is_fast: bool,
) -> "Question":
    """Return what is asked: what was given, then what is fast, then the defaults."""
    from cicf.report.sampling import FAST, Question

    base = FAST if is_fast else Question()
    return Question(
        sizes=None if m is None else _numbers(m, "--m"),
        clusters=base.clusters if k is None else _numbers(k, "--k"),
        draws=draws or base.draws,
        images=images or base.images,
        resamples=base.resamples,
        seed=seed or 0,
    )


def _numbers(text: str, option: str) -> tuple[int, ...]:
    found = words(text, option)
    if not all(word.isascii() and word.isdigit() and int(word) for word in found):
        raise ConfigError(
            f"{option} {text!r} must be whole numbers from 1, separated by commas, such as 1,2,3"
        )
    return tuple(dict.fromkeys(map(int, found)))


def _of_run(
    run: "LoadedRun", data: str, named: Mapping[str, object], settings: Sequence[str]
) -> "RunConfig":
    """Return the config of a run, with a place for its images; its clusters alone may be others."""
    from cicf.experiment import merged, recipe

    own = run.config.identity()
    own["data"].pop("name")
    over = overrides(named=named, settings=settings, file=None)
    config = recipe(data, merged(own, over))
    new = config.identity()
    new["data"].pop("name")
    for section in own.keys() - {"clusters"}:
        if own[section] != new[section]:
            raise ConfigError(
                f"{section} is {new[section]!r:.200}, but the run has {own[section]!r:.200}; leave "
                "it as it is, because images and network are the run's: only clusters.* may differ"
            )
    return config


def _watched(events: "Iterable[Event | Answer]") -> "Answer":
    """Show the work while it goes on, and return what it came to."""
    from cicf.report.sampling import Answer
    from cicf.report.sampling_gradients import Estimated, Working

    console = error_console()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeRemainingColumn(),
    )
    answer = None
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("images", total=None)
        for event in events:
            if isinstance(event, Answer):
                answer = event
            elif isinstance(event, Estimated):
                console.print(
                    f"gradients of {event.parameters:,} parameters for {event.gradients:,} images: "
                    f"about {timedelta(seconds=round(event.seconds))}",
                    soft_wrap=True,
                )
            else:
                what = event.what if isinstance(event, Working) else "images decoded"
                bar.update(task, description=what, completed=event.done, total=event.total)
    assert answer is not None
    return answer


def _drawn(answer: "Answer", output: Path) -> tuple[Path, ...]:
    from cicf.report.sampling_figure import save_sampling

    return save_sampling(answer, output, command=command_line())


def _facts(answer: "Answer", config: "RunConfig", run: Path | None) -> list[str]:
    """Return what the numbers belong to."""
    count = sum(answer.sources.values())
    target = "" if config.data.target is None else f", target {config.data.target} not read"
    sources = ", ".join(f"{name} {each}" for name, each in answer.sources.items())
    clusters = config.clusters
    seen = f"pixels at {clusters.resolution} x {clusters.resolution}"
    if clusters.source == "network":
        seen = "features of the network"
    network = f"{config.model.name}, as it starts (weights: {config.model.weights})"
    if run is not None:
        network = f"{config.model.name} of {run}"
    taken = "all of them"
    if answer.images < count:
        taken = f"{answer.images} of them, drawn so that domains and classes keep their shares"
    return [
        f"{config.data.name}{target}; {count} training images: {sources}; clusters on {seen}",
        f"network: {network}; {answer.parameters:,} parameters after Z; gradients of {taken}, "
        f"un-augmented, in evaluation mode; ‖g†‖ = {answer.gradient_norm:.4g}",
        "errors are exact functions of all inner products of the gradients: nothing is projected",
    ]


def _print(answer: "Answer", config: "RunConfig", question: "Question", run: Path | None) -> None:
    from cicf.report.sampling_text import (
        cosine_table,
        difference_table,
        error_table,
        gap_table,
        sentences,
    )

    for line in _facts(answer, config, run):
        print_line(line)
    drawn = f"{question.draws} draws, ± standard error"
    tables = (
        (f"gap E of all training images, {drawn}", gap_table(answer)),
        (f"root mean square of ‖ĝ − g†‖ over {answer.images} images, {drawn}", error_table(answer)),
        ("mean square of clustered less that of others, in %, 95 %", difference_table(answer)),
        (f"cosines of two gradients, K = {answer.k}, 95 % by bootstrap", cosine_table(answer)),
    )
    for title, (head, rows) in tables:
        print_table(title, head, rows, as_json=False)
    for line in sentences(answer):
        print_line(line)


def _values(
    answer: "Answer", config: "RunConfig", question: "Question", run: Path | None
) -> dict[str, object]:
    """Return everything as plain values."""
    from cicf.report.sampling_text import plain_values

    return {
        "data": config.data.name,
        "target": config.data.target,
        "run": None if run is None else str(run),
        "model": config.model.name,
        "weights": config.model.weights if run is None else "of the run",
        "features": config.clusters.source,
        "seed": question.seed,
        "draws": question.draws,
        **plain_values(answer),
    }
