"""The images that a config names, wherever they come from."""

from pathlib import Path
from typing import NamedTuple

from cicf.config import DataConfig
from cicf.core import DataError, did_you_mean
from cicf.data.benchmarks import (
    Benchmark,
    benchmark,
    benchmarks,
    is_benchmark,
    load_benchmark,
)
from cicf.data.demo import demo_digits
from cicf.data.domains import DomainDataset
from cicf.data.folder import load_folder
from cicf.data.items import Unreadable
from cicf.data.manifest import load_manifest
from cicf.experiment.presets import DEMO


class Loaded(NamedTuple):
    """Holds images, and what a user should know about them."""

    data: DomainDataset
    notes: tuple[str, ...] = ()


def load_data(
    config: DataConfig, *, is_for_training: bool = True, checks_images: bool = True
) -> Loaded:
    """Return the images that a config names; to train on, classes need two images each.

    Without `checks_images` they are not decoded first, unless that tells which are left out.
    """
    unreadable: Unreadable = "refused" if checks_images else "not looked for"
    if config.skips_unreadable:
        unreadable = "left out"
    if config.name == DEMO and config.root is None:
        return Loaded(demo_digits())
    if is_benchmark(config.name):
        known = benchmark(config.name)
        place = _place(known, config)
        return Loaded(*load_benchmark(known, place, unreadable=unreadable))
    path = (config.root or Path()) / config.name
    is_manifest = path.suffix.lower() in (".csv", ".jsonl")
    if not is_manifest and not path.is_dir():
        raise DataError(
            f"{path} is no folder, and {config.name!r} is no data set that is known by name; name "
            "a folder with class/image.jpg, a manifest (.csv, .jsonl), or "
            f"{did_you_mean(config.name, [DEMO, *benchmarks()])}"
        )
    load = load_manifest if is_manifest else load_folder
    return Loaded(load(path, unreadable=unreadable, is_for_training=is_for_training))


def _place(known: Benchmark, config: DataConfig) -> Path:
    """Return the folder to look for a benchmark in: the one of its name below the root, if any."""
    if config.root is None:
        if Path(config.name).exists():
            return Path(config.name)
        raise DataError(
            f"the images of {known.title} do not come with the package; say where they are with "
            "--root DIR (`cicf data list` tells where people get them)"
        )
    if not config.root.exists():
        raise DataError(f"--root {str(config.root)!r} does not exist; name the folder of the data")
    if not config.root.is_dir():
        return config.root
    own = [each for each in sorted(config.root.iterdir()) if _is_named(each, known)]
    return own[0] if len(own) == 1 else config.root


def _is_named(folder: Path, known: Benchmark) -> bool:
    return folder.is_dir() and is_benchmark(folder.name) and benchmark(folder.name) == known
