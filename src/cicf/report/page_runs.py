"""Where every number of a page comes from: the runs, their options, the command of each."""

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import JsonValue

from cicf.core import CicfError
from cicf.data.benchmarks import is_benchmark
from cicf.experiment import recipe
from cicf.experiment.presets import DEMO
from cicf.report.grid import NOTHING, Grid, Item, Line
from cicf.report.page_cost import total_seconds
from cicf.results.entries import Options, flat
from cicf.results.record import Record
from cicf.results.runs import FoundRun

_NAMED = {
    "data.target": "--target",
    "data.source": "--source",
    "method.name": "--method",
    "method.base.name": "--base",
    "average.name": "--average",
    "model.name": "--model",
    "epochs": "--epochs",
    "seed": "--seed",
}
"""Options that a command has a word for."""
_SYMBOLS = {"theta": "θ", "theta_dagger": "θ†"}
RUN_HEAD = ("method", "tested on", "seed", "target %", "validation %", "epochs", "seconds")
Facts = tuple[tuple[str, str], ...]


class RunFacts(NamedTuple):
    """Holds what one run was made of."""

    label: str
    path: Path
    facts: Facts
    notes: tuple[str, ...]
    command: str


class RowOptions(NamedTuple):
    """Holds all options of a row, which its runs share but for domain and seed."""

    label: str
    options: Facts


def run_grid(rows: Mapping[str, Sequence[FoundRun]]) -> Grid:
    """Return a line for each run."""
    lines = tuple(_run_line(label, run.record) for label, runs in rows.items() for run in runs)
    return Grid("Runs", RUN_HEAD, lines, ())


def _run_line(label: str, record: Record) -> Line:
    tested = record.accuracy("test") if record.last.test else None
    held = record.accuracy("validation")
    seed, epochs, seconds = record.config.get("seed"), record.last.epoch, total_seconds(record)
    items = (
        Item(", ".join(record.setup.protocol.tested) or NOTHING),
        Item(str(seed), value=float(seed) if isinstance(seed, int) else None),
        Item(NOTHING if tested is None else f"{tested:.1f}", value=tested),
        Item(f"{held:.1f}", value=held),
        Item(str(epochs), value=float(epochs)),
        Item(f"{seconds:.1f}", value=seconds),
    )
    return Line("ours", label, items)


def run_facts(label: str, run: FoundRun) -> RunFacts:
    """Return where a run lies and how it came about."""
    record, setup = run.record, run.record.setup
    counts = ", ".join(f"{name} {count}" for name, count in setup.sources.items())
    held = ", ".join(f"{name} {count}" for name, count in setup.validation.items())
    inner = "" if setup.inner_size is None else f"M {setup.inner_size}, "
    pace = NOTHING if setup.pace is None else str(setup.pace)
    found = {
        "run": record.run_id,
        "folder": str(run.path),
        "protocol": setup.protocol.kind,
        "tested on": ", ".join(setup.protocol.tested) or NOTHING,
        "training images": counts or NOTHING,
        "source validation": held or NOTHING,
        "data fingerprint": setup.fingerprint,
        "seed": str(record.config.get("seed")),
        "parameters": f"{_SYMBOLS[record.deploy]} is deployed, after epoch {record.last.epoch}",
        "batches": f"{inner}M^l {setup.outer_size}, {setup.steps_per_epoch} steps an epoch",
        "cut": setup.cut,
        "versions": ", ".join(f"{name} {each}" for name, each in setup.versions.items()),
        "threads": NOTHING if setup.threads is None else str(setup.threads),
        "a step takes": pace,
        "seconds": ", ".join(f"{name} {each:.1f}" for name, each in record.seconds.items()),
    }
    return RunFacts(label, run.path, tuple(found.items()), setup.notes, command_of(record))


def row_options(rows: Mapping[str, Sequence[FoundRun]]) -> tuple[RowOptions, ...]:
    """Return the options of each row, as its first run has them."""
    return tuple(
        RowOptions(
            label,
            tuple((name, text_of(value)) for name, value in flat(runs[0].record.config).items()),
        )
        for label, runs in rows.items()
    )


def differing(options: Sequence[RowOptions]) -> Grid | None:
    """Return the options in which rows differ, an option a line; None if they do in none."""
    tables = [dict(each.options) for each in options]
    beside = ("seed", "data.target", "data.source")
    names = dict.fromkeys(name for each in tables for name in each if name not in beside)
    lines = tuple(
        Line("ours", name, tuple(Item(each.get(name, NOTHING)) for each in tables))
        for name in names
        if len({each.get(name, NOTHING) for each in tables}) > 1
    )
    head = ("option", *(each.label for each in options))
    return Grid("Options that differ", head, lines, ()) if lines else None


def command_of(record: Record) -> str:
    """Return the command that makes a run again, with no more options than it takes.

    Where the images of a benchmark lie is not part of a run, so DIR stands for it.
    """
    options = flat(record.config)
    name = str(options.pop("data.name", DEMO))
    words = ["cicf", "train", name]
    if is_benchmark(name):
        words += ["--root", "DIR"]
    for option, flag in _NAMED.items():
        value = options.pop(option, None)
        if value is not None:
            words += [flag, text_of(value)]
    usual = _usual(record.config)
    for option, value in options.items():
        if option.partition(".")[0] != "machine" and usual.get(option, ...) != value:
            words += ["--set", f"{option}={_setting(value)}"]
    return shlex.join(words)


def _usual(config: Mapping[str, JsonValue]) -> Options:
    """Return what the recipe gives for the data, the network and the method; none if it fails."""
    data = config.get("data")
    over: dict[str, Any] = {
        part: _names(each)
        for part in ("model", "method", "average")
        if isinstance(each := config.get(part), dict) and "name" in each
    }
    try:
        return flat(recipe(str(data["name"] if isinstance(data, dict) else ""), over).identity())
    except (CicfError, KeyError):
        return {}


def _names(section: Mapping[str, JsonValue]) -> dict[str, Any]:
    base = section.get("base")
    return {"name": section["name"], **({"base": _names(base)} if isinstance(base, dict) else {})}


def text_of(value: JsonValue) -> str:
    """Return a value as a user would write it."""
    return value if isinstance(value, str) else "None" if value is None else json.dumps(value)


def _setting(value: JsonValue) -> str:
    """Return a value as `--set` reads it back: what is text and looks like none is quoted."""
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    text = text_of(value)
    if not isinstance(value, str):
        return text
    is_ambiguous = text in ("None", "null") or text != text.strip() or _is_toml(text)
    return json.dumps(text) if is_ambiguous else text


def _is_toml(text: str) -> bool:
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return False
    return True
