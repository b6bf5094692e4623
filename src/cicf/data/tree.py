"""The files below a folder, without those that no user put there."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".ppm", ".tif", ".tiff")


@dataclass(frozen=True, slots=True)
class Tree:
    """Holds the files below a folder in the order of their paths, and the folders left out."""

    root: Path
    files: tuple[Path, ...]
    hidden: tuple[Path, ...]
    """Hidden folders and what macOS adds to archives, the topmost of each."""

    @property
    def images(self) -> list[Path]:
        """Return the files with the ending of an image."""
        return [path for path in self.files if path.suffix.lower() in ENDINGS]


def walk(root: Path) -> Tree:
    """Return the files below a folder; links are followed, except into where they lie."""
    files: list[Path] = []
    hidden: list[Path] = []
    for folder, folders, names in os.walk(root, followlinks=True):
        here = Path(folder)
        hidden += [here / name for name in folders if _is_hidden(name)]
        folders[:] = [name for name in folders if not _is_hidden(name) and not _turns(here / name)]
        files += _files(here, names)
    return Tree(root, tuple(sorted(files)), tuple(sorted(hidden)))


def _files(folder: Path, names: list[str]) -> Iterator[Path]:
    for name in names:
        path = folder / name
        if not _is_hidden(name) and path.is_file():
            yield path


def _is_hidden(name: str) -> bool:
    return name.startswith(".") or name == "__MACOSX"


def _turns(folder: Path) -> bool:
    """Tell whether a link leads back to a folder that it lies in, and so round and round."""
    if not folder.is_symlink():
        return False
    here, there = folder.parent.resolve(), folder.resolve()
    return there == here or there in here.parents
