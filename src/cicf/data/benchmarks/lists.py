"""List files beside the images: which image is in which part, and how the classes are numbered.

`art_painting_train_kfold.txt` of PACS, `Art.txt` of CDAN and the like have a line `path label` for
each image. The path's own folders say which image is meant; the label is checked, never used.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.places import Key, Placed, place_of
from cicf.data.domains import Part

Kind = Part | Literal["all"]
KINDS: dict[str, Kind] = {
    "train": "train",
    "crossval": "validation",
    "val": "validation",
    "validation": "validation",
    "test": "test",
    "all": "all",
    "full": "all",
}
"""The last word of a list file's name."""


class Splits(NamedTuple):
    """Holds what the list files say: the parts of images, and what is remarkable or wrong."""

    parts: dict[Key, Part]
    notes: tuple[str, ...]
    problems: tuple[str, ...]


def list_files(benchmark: Benchmark, files: Sequence[Path]) -> list[Path]:
    """Return those of the files that are named as lists of a domain."""
    return [path for path in files if _named(benchmark, path) is not None]


def read_lists(
    benchmark: Benchmark, files: Sequence[Path], images: Sequence[Placed]
) -> Splits | None:
    """Return what list files say of the images; None where there are no such files."""
    read = _Read()
    for path in list_files(benchmark, files):
        _read_list(benchmark, path, read)
    if not read.members:
        return None
    parts: dict[Key, Part] = {}
    for domain in benchmark.domains:
        present = {image.key for image in images if image.key.domain == domain}
        parts.update(_parts(benchmark, domain, present, read))
    _check_files(images, read)
    _check_numbers(benchmark, read)
    return Splits(parts, tuple(read.notes), tuple(read.problems))


@dataclass(slots=True)
class _Read:
    """Collects what was read, list by list."""

    members: dict[tuple[str, Kind], dict[Key, str]] = field(default_factory=dict)
    """The listed images by domain and kind of list, each with its path as it is written there."""
    numbers: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    """The labels that go with each class."""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def of(self, domain: str, kind: Kind) -> set[Key]:
        """Return the images of all lists of a kind."""
        return set(self.members.get((domain, kind), ()))


def _named(benchmark: Benchmark, path: Path) -> tuple[str, Kind] | None:
    """Return the domain and the kind of a list file, by its name."""
    if path.suffix.lower() != ".txt":
        return None
    stem = re.sub(r"[_-]kfold$", "", path.stem, flags=re.IGNORECASE)
    whole = benchmark.domain(stem)
    if whole is not None:
        return whole, "all"
    found = re.fullmatch(r"(.+)[_-](\w+?)", stem)
    kind = KINDS.get(found[2].lower()) if found else None
    domain = benchmark.domain(found[1]) if found else None
    return None if kind is None or domain is None else (domain, kind)


def _read_list(benchmark: Benchmark, path: Path, read: _Read) -> None:
    named = _named(benchmark, path)
    assert named is not None
    lines, bad = _lines(path)
    # A text named after a domain may be about it; one that is named as a list must be one.
    if not lines and (not bad or named[1] == "all"):
        return
    members = read.members.setdefault(named, {})
    strangers, elsewhere = [], []
    for text, number in lines:
        image = PurePosixPath(text)
        place = place_of(benchmark, image.parts[:-1], domain=named[0])
        if place is None:
            strangers.append(text)
            continue
        if place.domain != named[0]:
            elsewhere.append(text)
        members[Key(place.domain, place.label, image.name)] = text
        read.numbers[place.label].add(number)
    for wrong, what in (
        (bad, "are not `path label`"),
        (strangers, f"name no class of {benchmark.title} as their last folder"),
        (elsewhere, "name images of another domain"),
    ):
        if wrong:
            read.problems.append(
                f"{len(wrong)} lines of {path} {what}, the first is {wrong[0]!r}; repair the list"
            )


def _lines(path: Path) -> tuple[list[tuple[str, int]], list[str]]:
    """Return the lines of a list as path and label, and those that are something else."""
    good, bad = [], []
    # Names of files that are no UTF-8 get into Python, and so into a comparison, the same way.
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        found = re.fullmatch(r"\s*(.*[^\s,])(?:\s+|\s*,\s*)(-?\d+)\s*", line)
        if found:
            # A path may have spaces, so the label is what comes after the last.
            good.append((found[1].replace("\\", "/"), int(found[2])))
        elif line.strip():
            bad.append(line)
    return good, bad


def _parts(benchmark: Benchmark, domain: str, present: set[Key], read: _Read) -> dict[Key, Part]:
    """Return the parts of a domain's images, where its lists give any."""
    train, validation = read.of(domain, "train"), read.of(domain, "validation")
    test, everything = read.of(domain, "test"), read.of(domain, "all")
    # PACS scores a target on all its images, so that its test lists repeat the other two.
    repeats = test >= (train or present)
    if "test" not in benchmark.parts.get(domain, {"test": 0}):
        # Lists that are not quite in order must not leave a target of a few images.
        repeats = not train or bool(test & train)
    if test and repeats:
        everything, test = everything | test, set()
    if train and not validation and everything > train:
        validation = everything - train - test
        read.notes.append(
            f"the lists of {domain} name no validation part; it is what the train list leaves out"
        )
    _check_overlap(domain, train & validation, "train and the validation", read)
    _check_overlap(domain, test & (train | validation), "test and another", read)
    # In this order, an image in two lists is only trained on.
    return {
        **dict.fromkeys(test, "test"),
        **dict.fromkeys(validation, "validation"),
        **dict.fromkeys(train, "train"),
    }


def _check_overlap(domain: str, both: set[Key], lists: str, read: _Read) -> None:
    if both:
        read.problems.append(
            f"{len(both)} images of {domain} are in the {lists} list, the first is "
            f"{'/'.join(min(both))}; remove them from one"
        )


def _check_files(images: Sequence[Placed], read: _Read) -> None:
    listed = {key: text for members in read.members.values() for key, text in members.items()}
    present = {image.key for image in images}
    missing = [text for key, text in listed.items() if key not in present]
    if missing:
        read.problems.append(
            f"{len(missing)} listed images do not exist, the first is {missing[0]}; get them, or "
            "lists that go with these images"
        )
    # Where folders name a part, lists are not needed; JiGen's of VLCS name other copies.
    unlisted = [image.path for image in images if image.folder is None and image.key not in listed]
    if unlisted:
        read.problems.append(
            f"{len(unlisted)} images are in no list, the first is {unlisted[0]}; remove them, or "
            "get lists that go with these images"
        )


def _check_numbers(benchmark: Benchmark, read: _Read) -> None:
    several = {label: sorted(found) for label, found in read.numbers.items() if len(found) > 1}
    for label, found in several.items():
        read.problems.append(
            f"the lists number class {label!r} as {' and as '.join(map(str, found))}; classes are "
            "told by their folders, but get lists that go together"
        )
    if several or not read.numbers:
        return
    numbers = {label: min(found) for label, found in read.numbers.items()}
    shared = [label for label in numbers if list(numbers.values()).count(numbers[label]) > 1]
    if shared:
        read.problems.append(
            f"the lists number classes {' and '.join(map(repr, shared))} alike; classes are told "
            "by their folders, but get lists that tell them apart"
        )
        return
    read.notes.append(_base(benchmark, numbers))


def _base(benchmark: Benchmark, numbers: dict[str, int]) -> str:
    offsets = {number - benchmark.classes.index(label) for label, number in numbers.items()}
    if len(offsets) == 1:
        return f"labels in the list files count from {offsets.pop()}"
    first = min(numbers, key=numbers.__getitem__)
    return (
        f"labels in the list files are in an order of their own ({first} = {numbers[first]}); "
        "classes are told by their folders"
    )
