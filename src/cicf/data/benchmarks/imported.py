"""Benchmarks that `cicf data import` has brought into one layout, with a manifest of hashes."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from cicf.core import DataError
from cicf.data.benchmarks.entries import Entry, Found
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.items import Item, has_changed
from cicf.data.manifest import MANIFEST, is_own_manifest, manifest_items
from cicf.data.tree import walk

RECORD = "dataset.json"
"""What was imported, beside the manifest."""


@dataclass(frozen=True, slots=True)
class CheckedBytes:
    """Is an image in a file of its own, whose hash is known."""

    path: Path
    sha256: str

    def read(self) -> bytes:
        """Return the bytes of the file; that they have changed is an error."""
        content = self.path.read_bytes()
        if self.sha256 and hashlib.sha256(content).hexdigest() != self.sha256:
            raise has_changed(self.path)
        return content


def is_imported(root: Path) -> bool:
    """Tell whether a folder has a manifest of our own."""
    return is_own_manifest(root / MANIFEST)


def read_imported(benchmark: Benchmark, root: Path) -> Found:
    """Return what the manifest lists, and how the folder differs from it."""
    _check_name(benchmark, root)
    items = manifest_items(root / MANIFEST)
    entries = [_entry(benchmark, item) for item in items]
    strangers = [item for item, entry in zip(items, entries, strict=True) if entry is None]
    missing = [item.path for item in items if not item.path.is_file()]
    problems = []
    if strangers:
        first = strangers[0]
        problems.append(
            f"{len(strangers)} rows of {MANIFEST} name no domain and class of {benchmark.title}, "
            f"the first is {first.domain}, {first.label}; import the data again"
        )
    if missing:
        problems.append(
            f"{len(missing)} images of {MANIFEST} do not exist, the first is {missing[0]}; import "
            "the data again"
        )
    tree, listed = walk(root), {item.path for item in items}
    others = [path for path in tree.images if path not in listed]
    notes = [f"{len(others)} images are not in {MANIFEST} and not used"] if others else []
    gone = set(missing)
    kept = (
        entry
        for item, entry in zip(items, entries, strict=True)
        if entry is not None and item.path not in gone
    )
    return Found("imported: domain/class/image", tuple(kept), tuple(notes), tuple(problems))


def _entry(benchmark: Benchmark, item: Item) -> Entry | None:
    domain, label = benchmark.domain(item.domain), benchmark.label(item.label)
    if domain is None or label is None:
        return None
    return Entry(domain, label, item.path.name, item.part, CheckedBytes(item.path, item.sha256))


def _check_name(benchmark: Benchmark, root: Path) -> None:
    path = root / RECORD
    if not path.is_file():
        return
    try:
        name = json.loads(path.read_text(encoding="utf-8"))["name"]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} does not say what was imported; import the data again") from error
    if name != benchmark.name:
        raise DataError(
            f"{root} holds {name!r}, imported under that name, and not {benchmark.name!r}; use "
            "that name, or import the other"
        )
