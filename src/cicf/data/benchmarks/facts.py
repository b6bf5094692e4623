"""The benchmarks of the paper: their names and their official counts, as facts in a file."""

import tomllib
from functools import cache, cached_property
from importlib.resources import files

from pydantic import Field

from cicf.core import DataError, did_you_mean
from cicf.core.frozen import Frozen
from cicf.core.names import plain
from cicf.data.domains import Part


class Benchmark(Frozen):
    """Holds what is known of a benchmark before anything of it is at hand."""

    name: str
    """How it is called on the command line, such as `office-home`."""
    title: str
    """How it is called in print."""
    size: str
    """How large its images and its archive are, in words."""
    obtained: tuple[str, ...]
    """Where people get it."""
    hub: str | None = None
    """Its copy on the Hugging Face hub that has all images with their domains, if there is one."""
    licence: str
    """What is known of its licence."""
    domains: dict[str, tuple[str, ...]]
    """Domains by our name, in the order of the paper's table, each with its other names."""
    classes: tuple[str, ...]
    """Classes in alphabetical order."""
    numbered: bool = False
    """Whether folders may name a class by its place in `classes`, counted from 0."""
    counts: dict[str, tuple[int, ...]]
    """Images by domain, in the order of the classes."""
    parts: dict[str, dict[Part, int]] = Field(default_factory=dict)
    """Images of the official split by domain and part, where there is one."""
    faulty: tuple[str, ...] = ()
    """Files that are known to be broken in some copies, as domain/class/name."""
    validation: float
    """The share of the sources that validates where no official split is at hand."""

    def domain(self, name: str) -> str | None:
        """Return our name of a domain, by any of its names; None if it is none."""
        return self._domain_names.get(plain(name))

    def label(self, name: str) -> str | None:
        """Return our name of a class, however it is spelled; None if it is none."""
        if self.numbered and name.isdecimal() and int(name) < len(self.classes):
            return self.classes[int(name)]
        return self._class_names.get(plain(name))

    @property
    def total(self) -> int:
        """Return the number of images."""
        return sum(map(sum, self.counts.values()))

    def official(self, domain: str, label: str) -> int:
        """Return the number of images of a class in a domain."""
        return self.counts[domain][self.classes.index(label)]

    @cached_property
    def _domain_names(self) -> dict[str, str]:
        return {plain(name): own for own, others in self.domains.items() for name in (own, *others)}

    @cached_property
    def _class_names(self) -> dict[str, str]:
        return {plain(name): name for name in self.classes}


@cache
def benchmarks() -> dict[str, Benchmark]:
    """Return all benchmarks by name."""
    text = (files("cicf.data.benchmarks") / "facts.toml").read_text(encoding="utf-8")
    return {
        name: Benchmark.model_validate({"name": name, **facts})
        for name, facts in tomllib.loads(text).items()
    }


def is_benchmark(name: str) -> bool:
    """Tell whether a word names a benchmark; a path never does."""
    return _own_name(name) is not None


def benchmark(name: str) -> Benchmark:
    """Return a benchmark by its name, however it is spelled."""
    found = _own_name(name)
    if found is None:
        raise DataError(f"{name!r} is no benchmark; {did_you_mean(name, benchmarks())}")
    return benchmarks()[found]


def _own_name(name: str) -> str | None:
    return {plain(each): each for each in benchmarks()}.get(plain(name))
