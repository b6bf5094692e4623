"""The runs of a table: methods, augmentations, domains, seeds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cicf.config import RunConfig, method_kind
from cicf.core import ConfigError, did_you_mean
from cicf.data.benchmarks import benchmark, is_benchmark
from cicf.experiment import merged, recipe
from cicf.results.folder import RunFolder
from cicf.virtual_step import VirtualStepConfig

Protocol = Literal["leave-one-domain-out", "single-source"]


@dataclass(frozen=True, slots=True)
class Variant:
    """Is one of the ways in which a method is run: a name, and the options that make it."""

    label: str
    values: Mapping[str, Any]  # Any: nested as the config is, checked with it


@dataclass(frozen=True, slots=True)
class Grid:
    """Says which runs a table is made of."""

    data: str
    methods: tuple[str, ...]
    augments: tuple[str, ...]
    domains: tuple[str, ...]
    """The domains to hold out, or to train on alone; none for all."""
    seeds: int
    protocol: Protocol = "leave-one-domain-out"
    preset: str = "recommended"
    variants: Mapping[str, tuple[Variant, ...]] = field(default_factory=dict)
    """How methods are run, by name; one that is absent is run once, as it is."""


@dataclass(frozen=True, slots=True)
class Job:
    """Is one run of a grid, and where it lives."""

    config: RunConfig
    folder: RunFolder
    variant: str = ""

    @property
    def kind(self) -> str:
        """Return what runs of one row share: method, augmentation, and the variant if any."""
        words = (self.config.method.name, self.config.data.augment, self.variant)
        return ", ".join(word for word in words if word)

    @property
    def label(self) -> str:
        """Return the run in words."""
        data = self.config.data
        domain = f"target {data.target}" if data.target is not None else f"source {data.source}"
        return f"{self.kind}, {domain}, seed {self.config.seed}"


def make_jobs(
    grid: Grid, over: Mapping[str, Any], *, known: Sequence[str], fingerprint: str, out: Path
) -> list[Job]:
    """Return the runs, seed by seed, so that whole rows are there early; `known` are all domains.

    `over` are values of the user's own, nested as the config is, laid over the preset.
    """
    _check_free(over)
    option = "target" if grid.protocol == "leave-one-domain-out" else "source"
    by_method = {method: _for_method(method, grid.methods, over) for method in grid.methods}
    jobs = {}
    for seed in range(grid.seeds):
        for domain in _domains(grid, known):
            for augment in grid.augments:
                for method, variant in _arms(grid):
                    own = {"data": {option: domain, "augment": augment}, "seed": seed}
                    values = merged({**over, "method": by_method[method]}, variant.values)
                    config = recipe(grid.data, merged(values, own), preset=grid.preset)
                    run_id = config.run_id(fingerprint)
                    jobs[run_id] = Job(config, RunFolder(out / run_id), variant.label)
    return list(jobs.values())


def _arms(grid: Grid) -> Iterator[tuple[str, Variant]]:
    for method in grid.methods:
        for variant in grid.variants.get(method, (Variant("", {}),)):
            yield method, variant


def _check_free(over: Mapping[str, Any]) -> None:
    """Refuse what a grid goes through by itself."""
    data = over.get("data", {})
    for name, value, option in (
        ("seed", over.get("seed"), "--seeds"),
        ("data.target", data.get("target"), "--targets"),
        ("data.source", data.get("source"), "--protocol single-source"),
    ):
        if value is not None:
            raise ConfigError(f"{name}={value!r} cannot be set for a whole table; use {option}")


def _for_method(method: str, methods: Sequence[str], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return the user's options of methods that this one has; those that none has are refused.

    Which parameters are stored is said for the method that is named with it, or for those that
    have a virtual step.
    """
    given = dict(over.get("method", {}))
    named = given.pop("name", None)
    known = {each: set(method_kind(each).model_fields) for each in methods}
    for option in given:
        if not any(option in names for names in known.values()):
            every = sorted(set().union(*known.values()) - {"name"})
            raise ConfigError(
                f"method.{option} is no option of {', '.join(methods)}; "
                f"{did_you_mean(option, every)}"
            )
    if named not in (None, method) or not issubclass(method_kind(method), VirtualStepConfig):
        given.pop("deploy", None)
    return {"name": method, **{k: v for k, v in given.items() if k in known[method]}}


def _domains(grid: Grid, known: Sequence[str]) -> list[str]:
    if len(known) < 2:
        raise ConfigError(
            f"{grid.data} has one domain only, {known[0]!r}; a benchmark takes at least two, "
            "arranged as domain/class/image.jpg"
        )
    names = [_own_name(grid.data, name) for name in grid.domains] or list(known)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--targets {name!r} is no domain of {grid.data}; {did_you_mean(name, known)}"
            )
    return names


def _own_name(data: str, name: str) -> str:
    return (benchmark(data).domain(name) or name) if is_benchmark(data) else name
