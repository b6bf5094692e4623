"""Where in which table the number of a run belongs, and what its row is called."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal, NamedTuple

from pydantic import JsonValue

from cicf.core import ResultError
from cicf.results.published import printed_label
from cicf.results.record import Choice, Parameters, Scored, Scores, Setup, pooled
from cicf.results.runs import FoundRun

Chosen = Literal["deployed", "theta", "theta_dagger"]
"""Which parameters a table shows: those that each run deploys, or the same of all."""
On = Literal["test", "validation"]
"""Which images a table is about: those that are tested on, or the sources' that are chosen by."""
Options = dict[str, JsonValue]
"""Options by dotted name."""

TEST, VALIDATION = "test", "source validation"
"""The column of runs that hold no domain out."""
BESIDE = ("data.target", "data.source", "data.root", "seed", "machine", "log_every", "keeps_epochs")
"""Options that do not tell rows apart: columns, seeds, and what decides no outcome."""
MOST_SHOWN = 3
"""Options that a label shows of those in which rows differ."""


class TableKey(NamedTuple):
    """Is what all numbers of a table share."""

    data: str
    fingerprint: str
    protocol: str
    model: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Is one number, and where it belongs."""

    path: Path
    key: TableKey
    method: str
    augment: str
    options: Options
    column: str
    seed: int
    value: float
    parameters: Parameters
    setup: Setup

    @property
    def row(self) -> str:
        """Return all that decides the outcome beside domain and seed, as one text."""
        return json.dumps(self.options, sort_keys=True)

    @property
    def added(self) -> tuple[str, ...]:
        """Return what goes beyond the method as it is: a loss inside of its step, an average."""
        base, average = (self.options.get(name) for name in ("method.base.name", "average.name"))
        return tuple(str(each) for each in (base, average and str(average).upper()) if each)

    @property
    def label(self) -> str:
        """Return what the row is called, if no other has the same name."""
        return " + ".join((label_of(self.method, self.augment), *self.added))

    @property
    def domains(self) -> set[str]:
        """Return every domain that can be a column."""
        if self.setup.protocol.name == "hold-out":
            return {self.column}
        return {*self.setup.sources, *self.setup.protocol.tested}


def make_entry(run: FoundRun, *, select: Choice, parameters: Chosen, on: On = "test") -> Entry:
    """Return the number of a run, or say why it has none."""
    record = run.record
    shown = record.deploy if parameters == "deployed" else parameters
    options = flat(record.config)
    data, model, method = (_name(run, options, f"{s}.name") for s in ("data", "model", "method"))
    seed = options.get("seed")
    if not isinstance(seed, int):
        raise ResultError(f"{run.path} has seed={seed!r} in its config, which must be a number")
    column, value = _number(run, _scored(run, select, shown), shown, on)
    return Entry(
        path=run.path,
        key=TableKey(data, record.setup.fingerprint, record.setup.protocol.kind, model),
        method=method,
        augment=str(options.get("data.augment", "basic")),
        options={name: v for name, v in options.items() if not _is_beside(name)},
        column=column,
        seed=seed,
        value=value,
        parameters=shown,
        setup=record.setup,
    )


def flat(config: Mapping[str, JsonValue], prefix: str = "") -> Options:
    """Return nested options by dotted name."""
    found: Options = {}
    for name, value in config.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{name}.")
        else:
            found[prefix + name] = value
    return found


def label_of(method: str, augment: str) -> str:
    """Return what the paper calls a method, with * for AutoAugment; its own name if it is new."""
    printed = printed_label(method)
    if augment != "autoaugment":
        return printed or method
    if printed is not None and printed.startswith("ERM"):
        return printed.replace("ERM", "ERM*", 1)
    return f"{printed or method}*"


def unique_labels(rows: Sequence[tuple[str, Options]]) -> list[str]:
    """Return the labels of rows; those that share one get what differs between them appended.

    What most of them have is not said, so that a row with one option changed says just that.
    """
    usual = usual_options(rows)
    found: list[str] = []
    for label, options in rows:
        others = [each for name, each in rows if name == label]
        values = {name: _text(options.get(name)) for name in _differing(others)}
        told = [item for item in values.items() if item not in usual[label].items()]
        shown = [f"{name}={value}" for name, value in told[:MOST_SHOWN]]
        found.append(f"{label} ({', '.join(shown)})" if shown else label)
    # Where the first options do not tell them apart, a number does.
    return [
        label if found.count(label) == 1 else f"{label} #{found[: place + 1].count(label)}"
        for place, label in enumerate(found)
    ]


def usual_options(rows: Sequence[tuple[str, Options]]) -> dict[str, dict[str, str]]:
    """Return by label what more than half of its rows have of the options in which they differ."""
    found: dict[str, dict[str, str]] = {}
    for label in dict.fromkeys(label for label, _ in rows):
        options = [each for name, each in rows if name == label]
        found[label] = {}
        for name in _differing(options):
            value, count = Counter(_text(each.get(name)) for each in options).most_common(1)[0]
            if 2 * count > len(options):
                found[label][name] = value
    return found


def _name(run: FoundRun, options: Options, name: str) -> str:
    found = options.get(name)
    if not isinstance(found, str):
        raise ResultError(f"{run.path} has {name}={found!r} in its config, which must be a name")
    return found


def _is_beside(name: str) -> bool:
    return name in BESIDE or name.partition(".")[0] in BESIDE


def _scored(run: FoundRun, select: Choice, shown: Parameters) -> Scored:
    if select == "oracle" and not run.record.epochs:
        raise ResultError(f"{run.path} kept no epochs to choose from; run it with --keep-epochs")
    if run.record.last.validation.theta_dagger is None and shown == "theta_dagger":
        raise ResultError(f"{run.path} is of a method without θ†; show what is deployed, or θ")
    try:
        # So that the oracle chooses by the numbers that are shown.
        return run.record.model_copy(update={"deploy": shown}).scored(select)
    except LookupError as error:
        raise ResultError(f"{run.path} was tested on no target to choose an epoch by") from error


def _number(run: FoundRun, scored: Scored, shown: Parameters, on: On) -> tuple[str, float]:
    """Return the column, and the accuracy in percent."""
    setup = run.record.setup
    is_whole = setup.protocol.name == "hold-out"
    tested = scored.test if on == "test" else None
    if tested is None and on == "test" and not is_whole:
        raise ResultError(f"{run.path} was not tested on {', '.join(setup.protocol.tested)}")
    scores = (tested or scored.validation).of(shown)
    if not scores or not all(score.total for score in scores.values()):
        raise ResultError(f"{run.path} has a score of no images; run it again")
    if is_whole:
        return (TEST if tested else VALIDATION), pooled(scores).percent
    name = setup.protocol.name
    columns = setup.sources if name == "single-source" else setup.protocol.tested
    # Epochs are chosen by all validation images together.
    value = pooled(scores).percent if on == "validation" else _mean_of_domains(scores)
    return ", ".join(columns), value


def _mean_of_domains(scores: Scores) -> float:
    return fmean(score.percent for score in scores.values())


def _differing(options: Sequence[Options]) -> list[str]:
    """Return the names of the options that are not the same everywhere, in their order."""
    names = dict.fromkeys(name for each in options for name in each)
    return [name for name in names if len({_text(each.get(name)) for each in options}) > 1]


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)
