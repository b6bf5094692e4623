"""Whether a benchmark at hand is the official one: counts, split, and every image looked at."""

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from cicf.core import DataError
from cicf.data.benchmarks.counts import counted, differences
from cicf.data.benchmarks.entries import Entry, FileBytes, Found
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.imported import CheckedBytes
from cicf.data.benchmarks.layouts import read_benchmark
from cicf.data.domains import PARTS, Part
from cicf.data.images import is_image


class ClassRow(NamedTuple):
    """Holds how many images of a class a domain has, and officially."""

    domain: str
    label: str
    found: int
    official: int


class PartRow(NamedTuple):
    """Holds how many images of a domain are in a part, and officially, where that is known."""

    domain: str
    part: Part
    found: int
    official: int | None


@dataclass(frozen=True, slots=True)
class Verification:
    """Holds what a benchmark at hand has, and what of it is not as it should be."""

    layout: str
    rows: tuple[ClassRow, ...]
    parts: tuple[PartRow, ...]
    """Empty where no split is at hand."""
    notes: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def is_complete(self) -> bool:
        """Tell whether nothing is wrong."""
        return not self.problems


def verify(
    benchmark: Benchmark, root: Path, *, on_image: Callable[[int, int], None] | None = None
) -> Verification:
    """Return how a benchmark at hand compares with the official one; every image is decoded.

    `on_image` is told how many of how many images were looked at.
    """
    found = read_benchmark(benchmark, root)
    counts = counted((entry.domain, entry.label) for entry in found.entries)
    rows = tuple(
        ClassRow(domain, label, counts[domain, label], benchmark.official(domain, label))
        for domain in benchmark.domains
        for label in benchmark.classes
    )
    parts = _part_rows(benchmark, found.entries)
    seen = _look_at(found.entries, on_image)
    notes = [*found.notes, *_split_notes(benchmark, parts), *_notes(seen)]
    problems = [*found.problems, *differences(benchmark, counts), *_part_problems(parts)]
    faulty_notes, faulty_problems = _faulty(benchmark, found, seen)
    return Verification(
        found.layout,
        rows,
        parts,
        (*notes, *faulty_notes),
        (*problems, *faulty_problems, *_problems(benchmark, seen)),
    )


@dataclass(slots=True)
class _Seen:
    """Collects what looking at every image has shown."""

    unreadable: list[Entry] = field(default_factory=list)
    changed: list[Entry] = field(default_factory=list)
    lying: list[tuple[Entry, str]] = field(default_factory=list)
    """Files whose ending is not their format, with the format."""
    parts: dict[tuple[str, bytes], set[Part]] = field(default_factory=dict)
    """The parts in which the same bytes occur, by domain and hash."""


def _look_at(entries: Sequence[Entry], on_image: Callable[[int, int], None] | None) -> _Seen:
    seen = _Seen()
    for number, entry in enumerate(entries, start=1):
        _look_at_one(entry, seen)
        if on_image is not None:
            on_image(number, len(entries))
    return seen


def _look_at_one(entry: Entry, seen: _Seen) -> None:
    is_file = isinstance(entry.image, FileBytes | CheckedBytes)
    try:
        content = entry.image.read()
    except DataError:
        (seen.changed if is_file else seen.unreadable).append(entry)
        return
    if entry.part is not None:
        key = entry.domain, hashlib.sha256(content).digest()
        seen.parts.setdefault(key, set()).add(entry.part)
    if not is_image(content):
        seen.unreadable.append(entry)
        return
    kind = _format(content)
    if is_file and kind != _format_of_ending(entry.name):
        seen.lying.append((entry, kind))


def _format(content: bytes) -> str:
    with Image.open(io.BytesIO(content)) as image:
        found = image.format or ""
    # Several JPEG images in one file, as some cameras write them; the first is what counts.
    return "JPEG" if found == "MPO" else found


def _format_of_ending(name: str) -> str:
    return Image.registered_extensions().get(Path(name).suffix.lower(), "")


def _part_rows(benchmark: Benchmark, entries: Sequence[Entry]) -> tuple[PartRow, ...]:
    found = Counter((entry.domain, entry.part) for entry in entries)
    if not any(part for _, part in found):
        return ()
    official = benchmark.parts
    return tuple(
        PartRow(domain, part, found[domain, part], official.get(domain, {}).get(part))
        for domain in benchmark.domains
        for part in PARTS
        if found[domain, part] or part in official.get(domain, {})
    )


def _split_notes(benchmark: Benchmark, parts: Sequence[PartRow]) -> list[str]:
    if parts or not benchmark.parts:
        return []
    return [
        f"the official split of {benchmark.title} is not at hand, neither as folders nor as list "
        f"files; a share of {benchmark.validation:g} of the sources will validate"
    ]


def _part_problems(parts: Sequence[PartRow]) -> list[str]:
    return [
        f"{row.domain} has {row.found} images in its {row.part} part instead of {row.official}"
        for row in parts
        if row.official is not None and row.found != row.official
    ]


def _notes(seen: _Seen) -> list[str]:
    notes = []
    if seen.lying:
        entry, kind = seen.lying[0]
        notes.append(
            f"{len(seen.lying)} files have an ending that is not their format, such as "
            f"{_path(entry)}, which is {kind}; they are read by their bytes"
        )
    both = [parts for parts in seen.parts.values() if {"train", "validation"} <= parts]
    if both:
        notes.append(
            f"{len(both)} images have the same bytes in train and in validation of one domain"
        )
    return notes


def _problems(benchmark: Benchmark, seen: _Seen) -> list[str]:
    problems = []
    broken = [entry for entry in seen.unreadable if _path(entry) not in benchmark.faulty]
    if broken:
        problems.append(
            f"{len(broken)} images cannot be read, the first is {_path(broken[0])}; get them again"
        )
    if seen.changed:
        problems.append(
            f"{len(seen.changed)} images have changed since they were imported, the first is "
            f"{_path(seen.changed[0])}; import the data again"
        )
    return problems


def _faulty(benchmark: Benchmark, found: Found, seen: _Seen) -> tuple[list[str], list[str]]:
    """Return notes and problems on files that are known to be broken in some copies."""
    notes, problems = [], []
    # In a container, files have names that were made up.
    present = {_path(e) for e in found.entries if isinstance(e.image, FileBytes | CheckedBytes)}
    unreadable = {_path(entry) for entry in seen.unreadable}
    for path in benchmark.faulty:
        if path in unreadable:
            problems.append(
                f"{path} cannot be read, a known fault of some copies; remove it, as Dassl does, "
                "or get it again"
            )
        elif path in present:
            notes.append(f"{path}, which is broken in some copies, is whole here")
        elif present:
            notes.append(f"{path}, which is broken in some copies, is absent here")
    return notes, problems


def _path(entry: Entry) -> str:
    return f"{entry.domain}/{entry.label}/{entry.name}"
