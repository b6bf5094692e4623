"""Images in folders: `class/*.jpg`, or `domain/class/*.jpg`."""

import logging
import os
from pathlib import Path

import torch

from cicf.core import DataError
from cicf.data.domains import DomainDataset
from cicf.data.images import ImageFiles, unreadable_images

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".tif", ".tiff")
ONLY_DOMAIN = "all"
"""The name of the domain where folders name none."""

_log = logging.getLogger(__name__)


def load_folder(
    root: Path, *, skips_unreadable: bool = False, is_for_training: bool = True
) -> DomainDataset:
    """Return the images below a folder, classes and domains in alphabetical order.

    Hidden files and folders are ignored, links are followed. Every image is decoded once, so that
    training does not stop at a broken one; broken ones are an error, or left out and counted.
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
    if len(bad) == len(found):
        raise DataError(f"none of the {len(found)} images in {root} can be read; check the folder")
    if bad:
        names = "".join(f"\n  {path}" for path in sorted(bad))
        _log.warning("left out %d of %d images, unreadable:%s", len(bad), len(found), names)
    data = _dataset([entry for entry in found if entry[2] not in bad])
    if is_for_training:
        _check_classes(data, root)
    return data


def _dataset(found: list[tuple[str, str, Path]]) -> DomainDataset:
    domains = tuple(sorted({domain for domain, _, _ in found}))
    classes = tuple(sorted({label for _, label, _ in found}))
    y = torch.tensor([classes.index(label) for _, label, _ in found])
    return DomainDataset(
        ImageFiles(tuple(path for _, _, path in found)),
        y,
        torch.tensor([domains.index(domain) for domain, _, _ in found]),
        classes,
        domains,
    )


def _check_classes(data: DomainDataset, root: Path) -> None:
    if len(data.classes) < 2:
        raise DataError(
            f"{root} has one class only, {data.classes[0]!r}; a classifier needs at least two "
            "folders of images"
        )
    counts = data.y.bincount()
    if int(counts.min()) < 2:
        name = data.classes[int(counts.argmin())]
        raise DataError(
            f"class {name!r} of {root} has one image; give it at least two, one to train on and "
            "one to validate with"
        )


def _found(root: Path) -> list[tuple[str, str, Path]]:
    """Return (domain, class, file) of every image, in the order of their paths."""
    files = (
        Path(folder, name) for folder, _, names in os.walk(root, followlinks=True) for name in names
    )
    paths = sorted(path for path in files if _is_image(path, root))
    by_depth: dict[int, Path] = {}
    for path in paths:
        by_depth.setdefault(len(path.relative_to(root).parts), path)
    for depth, path in by_depth.items():
        if depth not in (2, 3):
            raise DataError(
                f"{path} lies neither in class/ nor in domain/class/ below {root}; move it, or "
                "name the folder that holds the classes or the domains"
            )
    if len(by_depth) > 1:
        raise DataError(
            f"{root} mixes class/image.jpg ({by_depth[2].relative_to(root)}) with "
            f"domain/class/image.jpg ({by_depth[3].relative_to(root)}); use one layout"
        )
    names = [path.relative_to(root).parts[:-1] for path in paths]
    return [
        (name[0] if len(name) == 2 else ONLY_DOMAIN, name[-1], path)
        for name, path in zip(names, paths, strict=True)
    ]


def _is_image(path: Path, root: Path) -> bool:
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return not is_hidden and path.suffix.lower() in ENDINGS and path.is_file()
