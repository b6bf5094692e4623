"""Small folders of images, a small network, and the command line in this process."""

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

import torch
from PIL import Image
from torch import nn

from cicf.cli import main

SIZE = 16
TINY = "tests.support.runs:tiny_net"
OPTIONS = ("--model", TINY, "--weights", "none", "--set", f"data.image_size={SIZE}")
"""What makes a run take a fraction of a second."""


class Ended(NamedTuple):
    """Holds what a command left: its exit code, and what it printed."""

    code: int
    out: str
    err: str


def tiny_net(num_classes: int) -> nn.Module:
    """Return two convolutions, the mean over places, and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(4, 8, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, num_classes),
    )


def folder_of_images(
    path: Path, domains: Sequence[str], classes: Sequence[str], per_class: int, size: int = SIZE
) -> Path:
    """Write domain/class/*.png, or class/*.png without domains; a class is bright in one colour."""
    stream = torch.Generator().manual_seed(0)
    for domain in domains or ("",):
        for label, name in enumerate(classes):
            folder = path / domain / name
            folder.mkdir(parents=True)
            for index in range(per_class):
                noise = torch.randint(80, (size, size, 3), generator=stream, dtype=torch.uint8)
                noise[:, :, label % 3] += 120
                Image.fromarray(noise.numpy()).save(folder / f"{index:02d}.png")
    return path


def run_cli(*words: object) -> Ended:
    """Run a command as from a shell, but in this process, which has torch in memory."""
    out, err = StringIO(), StringIO()
    with _as_new(["cicf", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
        else:
            code = 0
    assert isinstance(code, int | None)
    return Ended(code or 0, out.getvalue(), err.getvalue())


def train(data: Path, out: Path, *words: object) -> Ended:
    """Train the small network for an epoch, unless the words say more."""
    return run_cli("train", data, "--out", out, "--epochs", 1, *OPTIONS, *words)


def contents(path: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, by name."""
    return {
        str(file.relative_to(path)): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


@contextmanager
def _as_new(argv: list[str]) -> Iterator[None]:
    """Give a command arguments, search path and log handlers of its own."""
    root = logging.getLogger()
    old = sys.argv, sys.path, root.handlers, root.level
    sys.argv, sys.path, root.handlers = argv, [*sys.path], []
    try:
        yield
    finally:
        sys.argv, sys.path, root.handlers = old[:3]
        root.setLevel(old[3])
