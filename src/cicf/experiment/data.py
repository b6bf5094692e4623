"""The images that a config names, wherever they come from."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
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
from cicf.data.cache import Cache, Wanted
from cicf.data.confounded import confounded_domains
from cicf.data.demo import demo_digits
from cicf.data.domains import DomainDataset
from cicf.data.fingerprint import fingerprint
from cicf.data.folder import load_folder
from cicf.data.images import ImageFiles
from cicf.data.items import Unreadable
from cicf.data.manifest import load_manifest
from cicf.data.views import View
from cicf.experiment.presets import DEMO, EMBEDDED
from cicf.training.events import Caching


class Loaded(NamedTuple):
    """Holds images, and what a user should know about them."""

    data: DomainDataset
    notes: tuple[str, ...] = ()


def load_data(
    config: DataConfig,
    *,
    is_for_training: bool = True,
    checks_images: bool = True,
    cache_root: Path | None = None,
) -> Loaded:
    """Return the images that a config names; to train on, classes need two images each.

    Without `checks_images` they are not decoded first, unless that tells which are left out. Nor
    are they where the cache in `cache_root` knows that these very bytes can be decoded.
    """
    if config.skips_unreadable:
        return _loaded(config, "left out", is_for_training)
    if not checks_images:
        return _loaded(config, "not looked for", is_for_training)
    if cache_root is None:
        return _loaded(config, "refused", is_for_training)
    # A file that cannot even be opened is told of by the look at all images.
    with suppress(OSError):
        found = _loaded(config, "not looked for", is_for_training)
        if _cache(found.data, cache_root, fingerprint(found.data)).is_checked:
            return found
    found = _loaded(config, "refused", is_for_training)
    if isinstance(found.data.images, ImageFiles):
        _cache(found.data, cache_root, fingerprint(found.data)).mark_checked()
    return found


def with_cache(data: DomainDataset, root: Path | None, fingerprint: str) -> DomainDataset:
    """Return data that take decoded images from the cache, where they are files."""
    if root is None or not isinstance(data.images, ImageFiles):
        return data
    return replace(data, images=data.images.kept_in(_cache(data, root, fingerprint)))


def kept(
    parts: Sequence[tuple[DomainDataset | None, Sequence[View]]],
) -> Iterator[Caching]:
    """Decode what the cache of these parts of a data set lacks, and tell of it."""
    wanted = [
        Wanted(part.images, views)
        for part, views in parts
        if part is not None and isinstance(part.images, ImageFiles)
    ]
    stores = [each.images.store for each in wanted]
    if stores and isinstance(stores[0], Cache):
        for told in stores[0].add(wanted):
            yield Caching(told.done, told.total)


def _cache(data: DomainDataset, root: Path, fingerprint: str) -> Cache:
    return Cache(root, fingerprint, count=len(data))


def _loaded(config: DataConfig, unreadable: Unreadable, is_for_training: bool) -> Loaded:
    if config.name == DEMO and config.root is None:
        return Loaded(demo_digits())
    if config.is_confounded:
        assert config.strength is not None
        assert config.confounder is not None
        return Loaded(confounded_domains(strength=config.strength, kind=config.confounder))
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
            f"{did_you_mean(config.name, [*EMBEDDED, *benchmarks()])}"
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
