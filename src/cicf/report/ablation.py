"""Accuracy against one option: runs that differ in nothing else but domain and seed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from cicf.core import ResultError
from cicf.report.intervals import average_interval, pooled_error
from cicf.results.axes import AXES, Axis, Over, Value
from cicf.results.curves import Ablation, Accuracies, Curve, Point
from cicf.results.entries import Chosen, Entry, Options, label_of, make_entry, unique_labels
from cicf.results.footnotes import SELECTIONS, SYMBOLS
from cicf.results.record import Choice
from cicf.results.runs import FoundRun
from cicf.results.table import Interval

BASELINE = "erm"


def ablation(
    runs: Sequence[FoundRun],
    over: Over,
    *,
    select: Choice = "last",
    parameters: Chosen = "deployed",
) -> Ablation:
    """Return accuracy against an option, a curve for each set of runs that share all other ones.

    The means of a curve are over the same domains for all its points. ERM on the same images is its
    baseline, where there are runs of it.
    """
    axis, skipped = AXES[over], list[str]()
    entries = _entries(runs, skipped, select=select, parameters=parameters)
    groups = _groups(entries, axis, skipped)
    if not groups:
        raise ResultError(
            f"no two of {len(runs)} runs differ in {axis.option} alone, beside domain and seed; "
            f"make some with cicf ablate DATA --over {over}"
        )
    names = unique_labels(
        [(_name(_first(group)), _others(_first(group), axis)) for group in groups]
    )
    bases = [each for each in entries if each.method == BASELINE]
    curves = [
        _curve(name, group, _baseline(bases, _first(group)), select, skipped)
        for name, group in zip(names, groups, strict=True)
    ]
    return Ablation(
        over=over,
        option=axis.option,
        axis=axis.title,
        is_ordered=axis.is_ordered,
        curves=tuple(curves),
        skipped=tuple(skipped),
    )


_Group = dict[Value, list[Entry]]
"""The runs of a curve by the value of the option, in its order."""


class _Covered(NamedTuple):
    """Holds the domains that a curve is over, and the values that have runs for all of them."""

    domains: tuple[str, ...]
    values: tuple[Value, ...]


def _entries(
    runs: Iterable[FoundRun], skipped: list[str], *, select: Choice, parameters: Chosen
) -> list[Entry]:
    found = []
    for run in runs:
        try:
            found.append(make_entry(run, select=select, parameters=parameters))
        except ResultError as error:
            skipped.append(str(error))
    return found


def _groups(entries: Iterable[Entry], axis: Axis, skipped: list[str]) -> list[_Group]:
    """Return the runs by what they share, where they have two values or more of the option."""
    found: dict[str, _Group] = {}
    seen: dict[object, Entry] = {}
    for entry in entries:
        value = axis.value(entry)
        if value is None:
            continue
        key = json.dumps([entry.key, _others(entry, axis)], sort_keys=True)
        first = seen.setdefault((key, value, entry.column, entry.seed), entry)
        if first is not entry:
            skipped.append(
                f"{entry.path} has the options, the domain and the seed of {first.path}, "
                "which is shown"
            )
            continue
        found.setdefault(key, {}).setdefault(value, []).append(entry)
    return [
        {value: group[value] for value in sorted(group, key=axis.place)}
        for _, group in sorted(found.items())
        if len(group) > 1 and len(_covered(group).values) > 1
    ]


def _others(entry: Entry, axis: Axis) -> Options:
    """Return what the runs of a curve share."""
    varied = (axis.option, *axis.beside)
    return {name: value for name, value in entry.options.items() if name not in varied}


def _first(group: _Group) -> Entry:
    return next(iter(group.values()))[0]


def _name(entry: Entry) -> str:
    return f"{label_of(entry.method, entry.augment)} on {entry.key.data}, {entry.key.model}"


def _baseline(entries: Iterable[Entry], like: Entry) -> list[Entry]:
    """Return the runs of ERM that share with others all that has a bearing on ERM."""
    wanted = like.key, _of_erm(like.options)
    found: dict[object, Entry] = {}
    for entry in entries:
        if (entry.key, _of_erm(entry.options)) == wanted:
            found.setdefault((entry.column, entry.seed), entry)
    return list(found.values())


def _of_erm(options: Options) -> Options:
    sections = ("method", "inner", "clusters")
    return {
        name: value
        for name, value in options.items()
        if name.partition(".")[0] not in sections and name != "model.cut"
    }


def _curve(
    title: str, group: _Group, bases: Sequence[Entry], select: Choice, skipped: list[str]
) -> Curve:
    covered = _covered(group)
    skipped += _left_out(title, group, covered)
    used = {value: group[value] for value in covered.values}
    baseline = None
    if set(covered.domains) <= {each.column for each in bases}:
        label = label_of(bases[0].method, bases[0].augment)
        baseline = _point(label, bases, covered.domains, None)
    points = [_point(value, entries, covered.domains, baseline) for value, entries in used.items()]
    entry = _first(group)
    caption = _caption(points, covered.domains, entry)
    return Curve(
        title=title,
        data=entry.key.data,
        fingerprint=entry.key.fingerprint,
        protocol=entry.key.protocol,
        model=entry.key.model,
        method=entry.method,
        domains=covered.domains,
        points=tuple(points),
        baseline=baseline,
        caption=caption,
        footnotes=(caption, *_footnotes(used, baseline, bases, select)),
    )


def _covered(group: _Group) -> _Covered:
    """Return the domains that most values have runs for, and as many of them as there are."""
    columns = {value: {each.column for each in group[value]} for value in group}
    candidates = [set.intersection(*columns.values()), *columns.values()]

    def values(domains: set[str]) -> tuple[Value, ...]:
        return tuple(value for value, there in columns.items() if domains <= there)

    best = max(
        (each for each in candidates if each), key=lambda each: (len(values(each)), len(each))
    )
    return _Covered(tuple(sorted(best)), values(best))


def _left_out(title: str, group: _Group, covered: _Covered) -> list[str]:
    """Return sentences that name the runs whose value or domain the others of a curve lack."""
    return [
        f"{entry.path} is left out of {title!r}: not all of its values have a run for the same "
        "domains"
        for value, entries in group.items()
        for entry in entries
        if value not in covered.values or entry.column not in covered.domains
    ]


def _point(
    value: Value, entries: Iterable[Entry], domains: Sequence[str], baseline: Point | None
) -> Point:
    found: Accuracies = {domain: {} for domain in domains}
    for entry in sorted(entries, key=lambda each: each.seed):
        if entry.column in found:
            found[entry.column][entry.seed] = entry.value
    by_domain = [list(found[domain].values()) for domain in domains]
    return Point(
        value=value,
        accuracies=found,
        mean=average_interval(by_domain),
        error=pooled_error(by_domain),
        difference=None if baseline is None else _difference(found, baseline.accuracies),
    )


def _difference(ours: Accuracies, theirs: Accuracies) -> Interval | None:
    pairs = [
        [
            value - theirs[domain][seed]
            for seed, value in ours[domain].items()
            if seed in theirs[domain]
        ]
        for domain in ours
    ]
    return average_interval(pairs) if all(pairs) else None


def _caption(points: Sequence[Point], domains: Sequence[str], entry: Entry) -> str:
    counts = [len(seeds) for point in points for seeds in point.accuracies.values()]
    number = str(counts[0]) if len(set(counts)) == 1 else f"{min(counts)}–{max(counts)}"
    seeds = f"{number} seed{'' if max(counts) == 1 else 's'}"
    kinds = {"leave-one-domain-out": "target", "single-source": "source", "hold-out": "part"}
    kind = kinds[entry.setup.protocol.name]
    over = f"over {seeds}, {kind} {domains[0]}"
    if len(domains) > 1:
        over = f"over {len(domains)} {kind}s ({', '.join(domains)}) of their means over {seeds}"
    bars = "one seed: no bars"
    if any(point.error is not None for point in points):
        bars = "bars: ± one standard error of that mean, by what varies over seeds"
        if len(domains) > 1:
            bars += f" within a {kind}, pooled over them"
    return f"mean {over}; {bars}"


def _footnotes(
    used: Mapping[Value, Sequence[Entry]],
    baseline: Point | None,
    bases: Sequence[Entry],
    select: Choice,
) -> list[str]:
    entries = [each for group in used.values() for each in group]
    first = entries[0]
    shown = sorted({SYMBOLS[each.parameters] for each in entries})
    setups = [each.setup for each in entries]
    versions = sorted({f"{name} {v}" for setup in setups for name, v in setup.versions.items()})
    notes = [
        f"epoch: {SELECTIONS[select]}; parameters: {' and '.join(shown)}",
        f"protocol: {first.key.protocol}",
        f"data: {first.key.data}, fingerprint {first.key.fingerprint}; {', '.join(versions)}",
    ]
    if baseline is not None:
        notes.append(
            f"line: {baseline.value} on the same images; differences to it are paired by domain "
            "and seed, with a 95 % interval"
        )
    elif bases:
        notes.append("no line: ERM has no run for some of the domains")
    return notes
