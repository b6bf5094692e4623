"""Image files with what is said of each: checked one by one, then made a data set."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from cicf.core import DataError
from cicf.data.domains import PARTS, DomainDataset, Part
from cicf.data.hashes import sha256_of
from cicf.data.images import ImageFiles, unreadable_images

_log = logging.getLogger(__name__)


class Item(NamedTuple):
    """Is one image file, with its domain and its class by name."""

    domain: str
    label: str
    path: Path
    part: Part | None = None
    sha256: str = ""
    """The hash of the file when it was imported; empty where none is known."""


Unreadable = Literal["refused", "left out", "not looked for"]
"""What becomes of images that cannot be read; looking for them means decoding each once."""


def readable(items: Sequence[Item], place: Path, *, unreadable: Unreadable) -> list[Item]:
    """Return the items whose files can be read; broken ones are an error, or left out and counted.

    Every image is decoded once, so that training does not stop at a broken one. Where a hash is
    known it is compared instead, and a difference is always an error.
    """
    if unreadable == "not looked for":
        return list(items)
    for item in items:
        if item.sha256 and sha256_of(item.path) != item.sha256:
            raise has_changed(item.path)
    bad = set(unreadable_images([item.path for item in items if not item.sha256]))
    if bad and unreadable == "refused":
        first = sorted(bad)[0]
        raise DataError(
            f"{len(bad)} of {len(items)} images cannot be read, the first is {first}; "
            "remove them, or pass --skip-unreadable"
        )
    if len(bad) == len(items):
        raise DataError(f"none of the {len(items)} images in {place} can be read; check the folder")
    if bad:
        names = "".join(f"\n  {path}" for path in sorted(bad))
        _log.warning("left out %d of %d images, unreadable:%s", len(bad), len(items), names)
    return [item for item in items if item.path not in bad]


def dataset_of(
    items: Sequence[Item],
    *,
    classes: Sequence[str] | None = None,
    domains: Sequence[str] | None = None,
) -> DomainDataset:
    """Return the items as a data set; classes and domains in alphabetical order, or as given."""
    class_ids = _numbered(classes or sorted({item.label for item in items}))
    domain_ids = _numbered(domains or sorted({item.domain for item in items}))
    has_parts = any(item.part for item in items)
    parts = [PARTS.index(item.part) if item.part else -1 for item in items]
    return DomainDataset(
        ImageFiles(tuple(item.path for item in items)),
        torch.tensor([class_ids[item.label] for item in items]),
        torch.tensor([domain_ids[item.domain] for item in items]),
        tuple(class_ids),
        tuple(domain_ids),
        part=torch.tensor(parts) if has_parts else None,
    )


def check_classes(data: DomainDataset, place: Path) -> None:
    """Refuse what no classifier can be trained on: one class, or a class with one image."""
    if len(data.classes) < 2:
        raise DataError(
            f"{place} has one class only, {data.classes[0]!r}; a classifier needs at least two "
            "folders of images"
        )
    counts = data.y.bincount()
    if int(counts.min()) < 2:
        name = data.classes[int(counts.argmin())]
        raise DataError(
            f"class {name!r} of {place} has one image; give it at least two, one to train on and "
            "one to validate with"
        )


def has_changed(path: Path) -> DataError:
    """Return the error of a file that is not what was imported."""
    return DataError(f"{path} has changed since it was imported; import the data again")


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}
