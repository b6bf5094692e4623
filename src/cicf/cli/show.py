"""What is printed: progress to the error stream, tables and JSON to the output."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from cicf.results.folder import RunFolder
from cicf.results.record import Evaluation, Record, Scored, Scores, pooled

if TYPE_CHECKING:
    from cicf.training import Event, Started, Stepped

NAMES = {"theta": "θ", "theta_dagger": "θ†"}


def watched(events: "Iterable[Event | RunFolder | Record]") -> tuple[Path, Record]:
    """Show a run while it goes on: a bar on a terminal, lines elsewhere; return what it left."""
    from cicf.training import Caching, EpochEnded, Paced, Started, Stepped

    console = error_console()
    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[terms]}", markup=False),
    )
    folder, record, terms, is_told = Path(), None, "", False
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("training", total=None, terms="")
        for event in events:
            if isinstance(event, RunFolder):
                folder = event.path
            elif isinstance(event, Caching):
                bar.update(task, completed=event.done, total=event.total, terms="images decoded")
            elif isinstance(event, Started):
                _introduce(event, folder, console)
                bar.update(task, total=event.total_steps, completed=event.step, terms="")
            elif isinstance(event, Paced):
                console.print(f"a step takes {event.pace}", soft_wrap=True)
            elif isinstance(event, Stepped):
                terms = _terms(event.terms)
                bar.update(task, completed=event.step, terms=_losses(event.terms))
                is_told = is_told or _tell_long_step(event, console)
            elif isinstance(event, EpochEnded):
                accuracies = _accuracies(event.validation)
                console.print(f"epoch {event.epoch}: {accuracies}; {terms}", soft_wrap=True)
            else:
                record = event
    assert record is not None
    return folder, record


def print_record(record: Record, folder: Path, *, as_json: bool) -> None:
    """Print what a run came to."""
    if as_json:
        print_json({"folder": str(folder), **json.loads(record.model_dump_json())})
        return
    protocol = record.setup.protocol
    table = Table(title=f"accuracy in %, run {record.run_id}", title_justify="left")
    tested = [", ".join(protocol.tested)] if protocol.tested else []
    for name in ("network", "source validation", *tested):
        table.add_column(name, justify="left" if name == "network" else "right")
    chosen = [("last epoch", record.last), ("best validation", record.best)]
    if record.epochs and record.last.test is not None:
        chosen.append(("oracle, chosen on the target", record.scored("oracle")))
    for name, scored in chosen:
        for row in _rows(name, scored, record):
            table.add_row(*row)
    console = _console()
    console.print(table)
    console.print(f"* is stored in {folder / 'model.safetensors'}", soft_wrap=True)
    versions = ", ".join(f"{name} {version}" for name, version in record.setup.versions.items())
    console.print(
        f"protocol: {protocol.kind}; one seed; data {record.setup.fingerprint}; {versions}",
        soft_wrap=True,
    )


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    as_json: bool,
    unbroken: str | None = None,
) -> None:
    """Print a table, or its rows as JSON objects; of one column, words are never broken."""
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
        return
    table = Table(title=title, title_justify="left")
    for name in columns:
        table.add_column(name, overflow="fold", no_wrap=name == unbroken)
    for row in rows:
        table.add_row(*row)
    _console().print(table)


def print_markdown(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table for a page in Markdown."""
    for row in (columns, ["---"] * len(columns), *rows):
        cells = [cell.replace("|", r"\|") for cell in row]
        print_line(f"| {' | '.join(cells)} |")


def print_scores(title: str, scores: Scores, *, as_json: bool) -> None:
    """Print the score on every domain, and on all images where there are several."""
    rows = list(scores.items())
    if len(rows) > 1:
        rows.append(("all images", pooled(scores)))
    if as_json:
        print_json(
            [
                {"domain": name, "images": s.total, "correct": s.correct, "accuracy": s.percent}
                for name, s in rows
            ]
        )
        return
    texts = [(name, str(score.total), f"{score.percent:.1f}") for name, score in rows]
    print_table(title, ("domain", "images", "accuracy in %"), texts, as_json=False)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))  # noqa: T201


def print_line(text: str) -> None:
    """Print a sentence."""
    _console().print(text, soft_wrap=True)


def error_console() -> Console:
    """Return where progress and complaints go."""
    return _console(stderr=True)


def _console(*, stderr: bool = False) -> Console:
    # Names of a user's files and classes may look like markup or emoji, and are neither.
    return Console(stderr=stderr, highlight=False, markup=False, emoji=False)


def _introduce(event: "Started", folder: Path, console: Console) -> None:
    setup = event.setup
    sources = ", ".join(f"{name} {count}" for name, count in setup.sources.items())
    console.print(f"run in {folder}", soft_wrap=True)
    console.print(f"{len(setup.classes)} classes; training images: {sources}", soft_wrap=True)
    for note in setup.notes:
        console.print(f"note: {note}", soft_wrap=True)
    if event.step:
        console.print(f"goes on after step {event.step}")


def _losses(terms: Mapping[str, float]) -> str:
    """Return what fits beside a bar in 80 columns."""
    if "inner_loss" not in terms:
        return f"loss {terms['loss']:.3f}"
    return f"loss at θ {terms['loss_at_theta']:.3f}, at θ† {terms['loss']:.3f}"


def _terms(terms: Mapping[str, float]) -> str:
    if "inner_loss" not in terms:
        return _losses(terms)
    return (
        f"{_losses(terms)}; inner loss {terms['inner_loss']:.3f}; α {terms['alpha']:.3g}, "
        f"virtual step {100 * terms['step_ratio']:.1f} % of θ"
    )


def _tell_long_step(event: "Stepped", console: Console) -> bool:
    """Tell where a virtual step is longer than θ; return whether it is."""
    ratio = event.terms.get("step_ratio", 0.0)
    if not ratio > 1:
        return False
    console.print(
        f"note: the virtual step of step {event.step} is {ratio:.1f} times as long as θ, so that "
        f"little of θ is left in θ†; lower method.alpha, which is {event.terms['alpha']:.3g} now, "
        "or bound the step with --set method.max_step_ratio=0.01",
        soft_wrap=True,
    )
    return True


def _accuracies(found: Evaluation) -> str:
    shown = [f"θ {pooled(found.theta).percent:.1f} %"]
    if found.theta_dagger is not None:
        shown.append(f"θ† {pooled(found.theta_dagger).percent:.1f} %")
    return f"source validation {', '.join(shown)}"


def _rows(name: str, scored: Scored, record: Record) -> list[list[str]]:
    rows = []
    for parameters in ("theta", "theta_dagger"):
        if parameters == "theta_dagger" and scored.validation.theta_dagger is None:
            continue
        is_stored = scored is record.last and parameters == record.deploy
        label = f"{name} ({scored.epoch}) at {NAMES[parameters]}{' *' if is_stored else ''}"
        found = [scored.validation] + ([scored.test] if scored.test else [])
        percents = [f"{record.percent(part, parameters):.1f}" for part in found]
        rows.append([label, *percents])
    return rows
