"""What the folders of a path say of an image: .../domain[/part]/class/image, in every layout."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from cicf.data.benchmarks.facts import Benchmark
from cicf.data.domains import Part

PartFolder = Part | Literal["full"]
"""A folder between domain and class; `full` is JiGen's, with train and crossval together."""
PART_FOLDERS: dict[str, PartFolder] = {
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "crossval": "validation",
    "test": "test",
    "full": "full",
}


class Place(NamedTuple):
    """Says where an image belongs, by the benchmark's own names."""

    domain: str
    label: str
    folder: PartFolder | None


class Key(NamedTuple):
    """Is what an image is known by, in folders and in list files alike."""

    domain: str
    label: str
    name: str


class Placed(NamedTuple):
    """Is an image file that lies where its benchmark has a place for it."""

    key: Key
    folder: PartFolder | None
    path: Path


def place_of(
    benchmark: Benchmark, folders: Sequence[str], *, domain: str | None = None
) -> Place | None:
    """Return what folders say, the last one being the class; None if they fit no place.

    `domain` stands in where they name none. What comes before the domain does not matter.
    """
    label = benchmark.label(folders[-1]) if folders else None
    if label is None:
        return None
    before = list(folders[:-1])
    folder = PART_FOLDERS.get(before[-1].lower()) if before else None
    if folder is not None:
        before.pop()
    found = benchmark.domain(before[-1]) if before else None
    if found is None and domain is None:
        return None
    return Place(found or str(domain), label, folder)
