"""Images in folders: `class/*.jpg`, or `domain/class/*.jpg`."""

from pathlib import Path

from cicf.core import DataError
from cicf.data.domains import DomainDataset
from cicf.data.items import Item, Unreadable, check_classes, dataset_of, readable
from cicf.data.tree import ENDINGS, walk

__all__ = ["ENDINGS", "ONLY_DOMAIN", "load_folder"]

ONLY_DOMAIN = "all"
"""The name of the domain where folders name none."""


def load_folder(
    root: Path, *, unreadable: Unreadable = "refused", is_for_training: bool = True
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
    data = dataset_of(readable(found, root, unreadable=unreadable))
    if is_for_training:
        check_classes(data, root)
    return data


def _found(root: Path) -> list[Item]:
    """Return every image, in the order of their paths."""
    paths = walk(root).images
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
        Item(name[0] if len(name) == 2 else ONLY_DOMAIN, name[-1], path)
        for name, path in zip(names, paths, strict=True)
    ]
