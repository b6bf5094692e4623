"""What finished runs took: seconds by phase, clustering's share, memory, and ratios to ERM."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cicf.core import ResultError
from cicf.core.frozen import Frozen
from cicf.results.entries import TableKey, flat, label_of, unique_labels
from cicf.results.record import Record
from cicf.results.runs import FoundRun

BASELINE = "erm"
PASSES = ("pass 1", "pass 2", "pass 3", "loss at θ")
"""What a virtual step consists of, as methods with one name it."""
REST = "rest of the step"
ORDER = ("clustering", "data", *PASSES, "steps", REST, "evaluation", "checkpoints")
"""In which phases are shown; steps that are not split are one phase."""


class Cost(Frozen):
    """Holds what one run took."""

    path: Path
    label: str
    method: str
    domain: str
    seed: int
    epochs: int
    steps: int
    """Of all epochs."""
    inner_size: int | None
    """M; None for a method without an inner batch."""
    outer_size: int
    threads: int | None
    seconds: dict[str, float]
    """By phase; no second is in two of them."""
    peak_memory: int | None
    """Bytes above what there was before training; None where it was not measured."""
    against: str | None = None
    """The run of ERM that the ratios are to."""
    times_erm: float | None = None
    """Seconds of an epoch, as a multiple of that run's."""
    memory_times_erm: float | None = None

    @property
    def total(self) -> float:
        """Return the seconds of all phases."""
        return float(sum(self.seconds.values()))

    @property
    def per_epoch(self) -> float:
        """Return the seconds of an epoch, clustering shared out evenly."""
        return self.total / self.epochs

    @property
    def clustering_percent(self) -> float | None:
        """Return clustering's share of the whole; None for a run that had nothing to cluster."""
        clustering = self.seconds.get("clustering", 0.0)
        return 100 * clustering / self.total if clustering else None


class CostTable(Frozen):
    """Holds runs on the same images by the same protocol with the same network."""

    title: str
    data: str
    fingerprint: str
    protocol: str
    model: str
    image_size: int
    phases: tuple[str, ...]
    """Those that a run has spent time on, in the order of a training."""
    costs: tuple[Cost, ...]
    footnotes: tuple[str, ...]


def cost_tables(runs: Sequence[FoundRun]) -> tuple[CostTable, ...]:
    """Return what runs took, those of different data, protocols, networks or image sizes apart.

    Where a run of ERM is among them, the others are told as multiples of it: that of the same
    domain and seed, of the same domain, or the first.
    """
    if not runs:
        raise ResultError("there is no finished run to show; finish one with cicf train --resume")
    groups: dict[tuple[TableKey, int], list[FoundRun]] = {}
    for run in runs:
        groups.setdefault(_key(run), []).append(run)
    return tuple(_table(key, size, group) for (key, size), group in sorted(groups.items()))


def _key(run: FoundRun) -> tuple[TableKey, int]:
    record, setup = run.record, run.record.setup
    options = flat(record.config)
    data, model = (str(options.get(f"{section}.name")) for section in ("data", "model"))
    key = TableKey(data, setup.fingerprint, setup.protocol.kind, model)
    return key, setup.image_size


def _table(key: TableKey, image_size: int, runs: Sequence[FoundRun]) -> CostTable:
    labels = unique_labels([(_name(run.record), flat(run.record.config)) for run in runs])
    costs = [_cost(run, label) for run, label in zip(runs, labels, strict=True)]
    bases = [cost for cost in costs if cost.method == BASELINE]
    costs = [_compared(cost, bases) for cost in costs]
    return CostTable(
        title=f"{key.data}, {key.model}, {image_size} pixels",
        data=key.data,
        fingerprint=key.fingerprint,
        protocol=key.protocol,
        model=key.model,
        image_size=image_size,
        phases=tuple(name for name in _phases(costs) if any(name in c.seconds for c in costs)),
        costs=tuple(costs),
        footnotes=tuple(_footnotes(key, costs)),
    )


def _name(record: Record) -> str:
    options = flat(record.config)
    method, augment = (str(options.get(each)) for each in ("method.name", "data.augment"))
    return f"{label_of(method, augment)}, {_domain(record)}, seed {options.get('seed')}"


def _domain(record: Record) -> str:
    protocol, sources = record.setup.protocol, record.setup.sources
    if protocol.name == "leave-one-domain-out":
        return ", ".join(protocol.tested)
    return f"from {', '.join(sources)}" if protocol.name == "single-source" else "all domains"


def _cost(run: FoundRun, label: str) -> Cost:
    record, setup = run.record, run.record.setup
    options = flat(record.config)
    seed, epochs = options.get("seed"), record.last.epoch
    return Cost(
        path=run.path,
        label=label,
        method=str(options.get("method.name")),
        domain=_domain(record),
        seed=seed if isinstance(seed, int) else 0,
        epochs=epochs,
        steps=epochs * setup.steps_per_epoch,
        inner_size=setup.inner_size,
        outer_size=setup.outer_size,
        threads=setup.threads,
        seconds=_split(record.seconds),
        peak_memory=record.peak_memory,
    )


def _split(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return phases that add up to the whole: steps in their parts, where a method names them."""
    found = {name: value for name, value in seconds.items() if value > 0}
    parts = sum(found.get(name, 0.0) for name in PASSES)
    if parts and "steps" in found:
        found[REST] = max(found.pop("steps") - parts, 0.0)
    return {name: found[name] for name in _ordered(found)}


def _ordered(names: Iterable[str]) -> list[str]:
    """Return names in the order of a training, unknown ones behind."""
    names = list(names)
    return [*(name for name in ORDER if name in names), *(n for n in names if n not in ORDER)]


def _phases(costs: Iterable[Cost]) -> list[str]:
    return _ordered(dict.fromkeys(name for cost in costs for name in cost.seconds))


def _compared(cost: Cost, bases: Sequence[Cost]) -> Cost:
    """Return a cost with its ratios to the nearest run of ERM, if there is one."""
    others = [base for base in bases if base.total > 0 and base.path != cost.path]
    if cost.method == BASELINE or not others:
        return cost
    nearest = min(
        others, key=lambda base: (base.domain != cost.domain, base.seed != cost.seed, base.label)
    )
    memory = None
    if cost.peak_memory is not None and nearest.peak_memory:
        memory = cost.peak_memory / nearest.peak_memory
    return cost.model_copy(
        update={
            "against": nearest.label,
            "times_erm": cost.per_epoch / nearest.per_epoch,
            "memory_times_erm": memory,
        }
    )


def _footnotes(key: TableKey, costs: Sequence[Cost]) -> list[str]:
    notes = [
        f"protocol: {key.protocol}; data: {key.data}, fingerprint {key.fingerprint}",
        "seconds of training, over all parts of an interrupted run; reading the images for the "
        "first time and testing on the target are not in them",
        "memory: the most that training took above what there was before it",
    ]
    if any(cost.clustering_percent is not None for cost in costs):
        notes.append(
            "the paper, PACS on a GPU: clustering takes 164 of 3432 seconds, 4.8 %; 7.151 GiB"
        )
    if any("steps" in cost.seconds and cost.inner_size is not None for cost in costs):
        notes.append("steps that are not split: their passes were not timed")
    if any(cost.peak_memory is None for cost in costs):
        notes.append("no memory: it was not measured, or could not be")
    compared = [cost for cost in costs if cost.against is not None]
    if compared:
        notes.append("× ERM: seconds of an epoch, and memory, as multiples of a run of ERM")
    notes += [
        f"{cost.label} is compared with {cost.against}, the nearest there is"
        for cost in compared
        if not any(_is_partner(cost, base) for base in costs if base.label == cost.against)
    ]
    threads = sorted({cost.threads for cost in costs if cost.threads is not None})
    if threads:
        notes.append(f"threads: {' and '.join(map(str, threads))}")
    return notes


def _is_partner(cost: Cost, base: Cost) -> bool:
    return (base.domain, base.seed) == (cost.domain, cost.seed)
