"""Benchmarks as folders of images: one rule, .../domain[/part]/class/image, serves all layouts."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cicf.core import DataError
from cicf.data.benchmarks.entries import Entry, FileBytes, Found
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.lists import Splits, read_lists
from cicf.data.benchmarks.places import Key, Place, Placed, place_of
from cicf.data.domains import Part
from cicf.data.tree import Tree

MOST_NAMED = 5
"""How many names a sentence lists."""


def read_image_tree(benchmark: Benchmark, tree: Tree) -> Found | None:
    """Return the images that lie where the benchmark has a place for them; None if none does."""
    sorted_out = _sorted_out(benchmark, tree)
    if not sorted_out.placed:
        return None
    placed = _without_copies(benchmark, sorted_out.placed)
    split = {image.key.domain for image in placed if image.folder == "train"}
    listed_twice = {image.key for image in placed if image.folder in ("train", "validation")}
    kept = [image for image in placed if image.folder != "full" or image.key not in listed_twice]
    lists = read_lists(benchmark, tree.files, placed)
    notes = _notes(tree, sorted_out.others, repeats=len(placed) > len(kept))
    problems = _problems(benchmark, sorted_out.strangers)
    if lists is not None:
        notes += lists.notes
        problems += lists.problems
    return Found(
        _layout(kept, lists), tuple(_entries(kept, lists, split)), tuple(notes), tuple(problems)
    )


def some(names: Iterable[str]) -> str:
    """Return the first few names, and how many more there are."""
    found = list(names)
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return ", ".join(found[:MOST_NAMED]) + more


@dataclass(frozen=True, slots=True)
class _SortedOut:
    """Holds the images of a folder, by what their folders say."""

    placed: list[Placed] = field(default_factory=list)
    strangers: list[Path] = field(default_factory=list)
    """Those in a domain, but in no class."""
    others: list[Path] = field(default_factory=list)


def _sorted_out(benchmark: Benchmark, tree: Tree) -> _SortedOut:
    found = _SortedOut()
    places: dict[Path, tuple[Place | None, bool]] = {}
    for path in tree.images:
        if path.parent not in places:
            names = path.parent.relative_to(tree.root).parts
            has_domain = any(benchmark.domain(name) for name in names[:-1])
            places[path.parent] = place_of(benchmark, names), has_domain
        place, has_domain = places[path.parent]
        if place is not None:
            key = Key(place.domain, place.label, path.name)
            found.placed.append(Placed(key, place.folder, path))
        else:
            (found.strangers if has_domain else found.others).append(path)
    return found


def _without_copies(benchmark: Benchmark, images: Sequence[Placed]) -> list[Placed]:
    """Return every image once; links to one file are one image, two files are refused."""
    seen: dict[Key, list[Placed]] = {}
    kept = []
    for image in images:
        rivals = seen.setdefault(image.key, [])
        other = next((each for each in rivals if _collide(each, image)), None)
        if other is None:
            rivals.append(image)
            kept.append(image)
        elif other.path.resolve() != image.path.resolve():
            raise DataError(
                f"{other.path} and {image.path} are the same image of {benchmark.title}, so there "
                "are two copies of it; name the folder of one"
            )
    return kept


def _collide(one: Placed, other: Placed) -> bool:
    # Two parts may have different images of one name.
    return one.folder == other.folder or None in (one.folder, other.folder)


def _notes(tree: Tree, others: Sequence[Path], *, repeats: bool) -> list[str]:
    notes = []
    if repeats:
        notes.append("the folders `full` repeat train and crossval and are left out")
    if tree.hidden:
        names = some(str(path.relative_to(tree.root)) for path in tree.hidden)
        notes.append(f"hidden folders are left out: {names}")
    if others:
        notes.append(
            f"{len(others)} images lie in no domain and are left out, the first is {others[0]}"
        )
    return notes


def _problems(benchmark: Benchmark, strangers: Sequence[Path]) -> list[str]:
    if not strangers:
        return []
    return [
        f"{len(strangers)} images lie in a domain, but in no class of {benchmark.title}, the "
        f"first is {strangers[0]}; move them, or name a narrower folder"
    ]


def _entries(images: Sequence[Placed], lists: Splits | None, split: set[str]) -> Iterable[Entry]:
    listed = {} if lists is None else lists.parts
    for image in images:
        domain, label, name = image.key
        yield Entry(domain, label, name, _part(image, listed, split), FileBytes(image.path))


def _part(image: Placed, listed: Mapping[Key, Part], split: set[str]) -> Part | None:
    """Return the part that the folders name, or else the lists.

    What `full` has beside `train`, where there is no crossval, is the validation part.
    """
    if image.folder is None:
        return listed.get(image.key)
    if image.folder == "full":
        return "validation" if image.key.domain in split else None
    return image.folder


def _layout(images: Sequence[Placed], lists: Splits | None) -> str:
    has_parts = any(image.folder for image in images)
    folders = "domain/part/class/image" if has_parts else "domain/class/image"
    return folders if lists is None else f"{folders} with list files"
