"""Runs with names that a page could take for markup, and pages read without a browser."""

import csv
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

from tests.support.records import PACS, complete, write
from tests.support.runs import folder_of_images, train

ODD_CLASS = "<script>alert(1)</script>"
ODD_FOLDER = '"&<b>run'
VOID = ("meta", "img", "wbr", "link", "input")
DRAWN = ("circle", "line", "path", "rect")
"""What stands alone in a drawing, written with a slash."""


def odd_runs(folder: Path) -> Path:
    """Return a folder of runs: ERM and CICF, trained on images of a class with an odd name.

    The images lie in the folder that is given, which is the root to name.
    """
    images = folder_of_images(folder / "images", ("a", "b", "<c>"), ("one", "two"), 6)
    with (folder / "images.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("path", "label", "domain"))
        for path in sorted(images.rglob("*.png")):
            label = ODD_CLASS if path.parent.name == "one" else "two"
            writer.writerow((path.relative_to(folder), label, path.parent.parent.name))
    for method in ("erm", "cicf"):
        out = folder / "runs" / f"{ODD_FOLDER}-{method}"
        where = ("--root", folder, "--target", "<c>")
        ended = train(Path("images.csv"), out, *where, "--method", method, "--epochs", 2)
        assert ended.code == 0, ended.err
    return folder / "runs"


def pacs_runs(folder: Path) -> Path:
    """Return a folder of runs of ERM and CICF on all targets of PACS that were never trained."""
    for method, percent in (("erm", 70.0), ("cicf", 72.0)):
        percents = {
            seed: {name: percent + 9.7 * place + seed for place, name in enumerate(PACS)}
            for seed in (0, 1)
        }
        for each in complete(percents, method=method):
            write(folder, each)
    return folder


@dataclass
class Read:
    """Holds what a page consists of."""

    tags: list[tuple[str, dict[str, str | None]]] = field(default_factory=list)
    texts: list[tuple[str, str]] = field(default_factory=list)
    """The tag that a text stands in, and the text."""

    @property
    def text(self) -> str:
        """Return what is read, without scripts and styles."""
        return "".join(text for tag, text in self.texts if tag not in ("script", "style"))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of every tag of a name."""
        return [attributes for name, attributes in self.tags if name == tag]

    def inside(self, tag: str) -> list[str]:
        """Return the texts directly in tags of a name."""
        return [text for name, text in self.texts if name == tag]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found = Read()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in DRAWN, f"{tag} needs an end"
        self.found.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.found.texts.append((self.open[-1] if self.open else "", data))


def read_page(text: str) -> Read:
    """Return a page as tags and texts; tags that do not close are an error."""
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader.found
