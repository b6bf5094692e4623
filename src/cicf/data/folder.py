"""Images in folders: `class/*.jpg`, or `domain/class/*.jpg`."""

import logging
from pathlib import Path

import torch

from cicf.core import DataError
from cicf.data.domains import DomainDataset
from cicf.data.images import ImageFiles, unreadable_images

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".tif", ".tiff")
ONLY_DOMAIN = "all"
"""The name of the domain where folders name none."""

_log = logging.getLogger(__name__)


def load_folder(root: Path, *, skips_unreadable: bool = False) -> DomainDataset:
    """Return the images below a folder, classes and domains in alphabetical order.

    Hidden files and folders are ignored. Every image is decoded once, so that training does not
    stop at a broken one; broken ones are an error, or left out and counted.
    """
    if not root.is_dir():
        raise DataError(f"{root} is no folder; name one that holds class/image.jpg")
    found = _found(root)
    if not found:
        raise DataError(
            f"{root} holds no images as class/image.jpg or domain/class/image.jpg; "
            f"endings that count are {', '.join(ENDINGS)}"
        )
    bad = set(unreadable_images([path for _, _, path in found]))
    if bad and not skips_unreadable:
        first = sorted(bad)[0]
        raise DataError(
            f"{len(bad)} of {len(found)} images cannot be read, the first is {first}; "
            "remove them, or pass --skip-unreadable"
        )
    for path in sorted(bad):
        _log.warning("left out %s, which cannot be read", path)
    return _dataset([entry for entry in found if entry[2] not in bad], root)


def _dataset(found: list[tuple[str, str, Path]], root: Path) -> DomainDataset:
    domains = tuple(sorted({domain for domain, _, _ in found}))
    classes = tuple(sorted({label for _, label, _ in found}))
    y = torch.tensor([classes.index(label) for _, label, _ in found])
    if len(classes) < 2:
        raise DataError(
            f"{root} has one class only, {classes[0]!r}; a classifier needs at least two "
            "folders of images"
        )
    counts = y.bincount()
    if int(counts.min()) < 2:
        raise DataError(
            f"class {classes[int(counts.argmin())]!r} of {root} has one image; give it at least "
            "two, one to train on and one to validate with"
        )
    return DomainDataset(
        ImageFiles(tuple(path for _, _, path in found)),
        y,
        torch.tensor([domains.index(domain) for domain, _, _ in found]),
        classes,
        domains,
    )


def _found(root: Path) -> list[tuple[str, str, Path]]:
    """Return (domain, class, file) of every image, in the order of their paths."""
    entries = []
    for path in sorted(root.rglob("*")):
        parts = path.relative_to(root).parts
        is_hidden = any(part.startswith(".") for part in parts)
        if is_hidden or path.suffix.lower() not in ENDINGS or not path.is_file():
            continue
        if len(parts) == 2:
            entries.append((ONLY_DOMAIN, parts[0], path))
        elif len(parts) == 3:
            entries.append((parts[0], parts[1], path))
    depths = {domain == ONLY_DOMAIN for domain, _, _ in entries}
    if len(depths) > 1:
        shallow = next(path for domain, _, path in entries if domain == ONLY_DOMAIN)
        raise DataError(
            f"{root} mixes class/image.jpg ({shallow.relative_to(root)}) with "
            "domain/class/image.jpg; use one layout"
        )
    return entries
