"""What is found of a benchmark, in whatever layout it arrived."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from cicf.data.domains import Part


@runtime_checkable
class ImageBytes(Protocol):
    """Is the encoded bytes of one image, read when they are asked for."""

    def read(self) -> bytes:
        """Return the bytes, of any format that Pillow knows."""


@dataclass(frozen=True, slots=True)
class FileBytes:
    """Is an image in a file of its own."""

    path: Path

    def read(self) -> bytes:
        """Return the bytes of the file."""
        return self.path.read_bytes()


@dataclass(frozen=True, slots=True)
class Entry:
    """Is one image of a benchmark, by the benchmark's own names, wherever its bytes are."""

    domain: str
    label: str
    name: str
    """The file's name, or one made up where it has none."""
    part: Part | None
    """None where no official split says."""
    image: ImageBytes


@dataclass(frozen=True, slots=True)
class Found:
    """Holds the images of a benchmark that lie in a place, and what is remarkable about them."""

    layout: str
    """The layout in a few words, such as `domain/class/image`."""
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()
    """Facts worth a line, such as the base of the labels in list files."""
    problems: tuple[str, ...] = ()
    """What is wrong, each in one sentence."""
