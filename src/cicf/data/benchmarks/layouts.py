"""Benchmarks wherever they lie and in whatever layout they came: read as they are, or loaded."""

from collections.abc import Sequence
from pathlib import Path

from cicf.core import DataError
from cicf.data.benchmarks.counts import counted, differences
from cicf.data.benchmarks.entries import Entry, FileBytes, Found
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.image_tree import read_image_tree, some
from cicf.data.benchmarks.imported import CheckedBytes, is_imported, read_imported
from cicf.data.benchmarks.lists import list_files
from cicf.data.domains import DomainDataset
from cicf.data.items import Item, Unreadable, dataset_of, readable
from cicf.data.manifest import MANIFEST, check_files, is_own_manifest, manifest_items
from cicf.data.tree import Tree, walk

CONTAINERS = (".hdf5", ".h5", ".parquet", ".arrow")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz")
UNREAD = (".7z", ".rar")
"""Archives that Python has no reader for."""


def read_benchmark(benchmark: Benchmark, root: Path) -> Found:
    """Return the images of a benchmark at or below a folder, in any layout that is known.

    What is missing, or not as it should be, is said in the problems and not refused.
    """
    found = _read_files(benchmark, root)
    if found is None:
        from cicf.data.benchmarks.containers import read_containers

        found = read_containers(benchmark, root)
    if found is None or not found.entries:
        raise _nothing(benchmark, root, found)
    return found


def load_benchmark(
    benchmark: Benchmark, root: Path, *, unreadable: Unreadable = "refused"
) -> tuple[DomainDataset, tuple[str, ...]]:
    """Return a benchmark ready to train on, and notes on how it differs from the official one.

    Classes and domains are all that the benchmark has, in its order, whatever the files are named.
    A missing domain, or a domain without one of the classes, is refused.
    """
    found = _read_files(benchmark, root)
    if found is None:
        raise _not_loadable(benchmark, root)
    if is_imported(root):
        check_files(manifest_items(root / MANIFEST), root / MANIFEST)
    items = _ordered(benchmark, found.entries)
    _check_complete(benchmark, root, items)
    items = readable(items, root, unreadable=unreadable)
    _check_complete(benchmark, root, items)
    off = differences(benchmark, counted((item.domain, item.label) for item in items))
    notes = [f"counts differ from the official ones: {'; '.join(off)}"] if off else []
    data = dataset_of(items, classes=benchmark.classes, domains=tuple(benchmark.domains))
    return data, (*found.notes, *found.problems, *notes)


def _read_files(benchmark: Benchmark, root: Path) -> Found | None:
    """Return the images that are files of their own; None if no file fits the benchmark."""
    if root.is_file() and root.suffix.lower() in CONTAINERS:
        return None
    if root.is_file() and root.suffix.lower() in UNREAD:
        raise DataError(f"{root} is an archive of a kind that is not read; unpack it yourself")
    if root.is_file() and root.suffix.lower() in ARCHIVES:
        raise DataError(f"{root} is an archive; {_import_first(benchmark, root)}")
    if not root.is_dir():
        raise DataError(f"{root} is no folder; name the one that holds {benchmark.title}")
    if is_imported(root):
        return read_imported(benchmark, root)
    tree = walk(root)
    found = read_image_tree(benchmark, tree)
    if found is not None:
        _check_not_imported(tree, [_item(entry).path for entry in found.entries])
    return found


def _check_not_imported(tree: Tree, images: Sequence[Path]) -> None:
    """Refuse to read an imported folder from above, past its manifest and its name."""
    for path in tree.files:
        if path.name == MANIFEST and is_own_manifest(path):
            folder = path.parent
            if any(image.is_relative_to(folder) for image in images):
                raise DataError(
                    f"{tree.root} holds a data set that was imported into {folder}; name that "
                    "folder, so that its manifest is used"
                )


def _ordered(benchmark: Benchmark, entries: Sequence[Entry]) -> list[Item]:
    """Return the images as files, by domain, class and name."""
    domains = {name: number for number, name in enumerate(benchmark.domains)}
    classes = {name: number for number, name in enumerate(benchmark.classes)}
    ordered = sorted(
        entries,
        key=lambda each: (domains[each.domain], classes[each.label], each.name, each.part or ""),
    )
    return [_item(entry) for entry in ordered]


def _item(entry: Entry) -> Item:
    image = entry.image
    assert isinstance(image, FileBytes | CheckedBytes)
    sha256 = image.sha256 if isinstance(image, CheckedBytes) else ""
    return Item(entry.domain, entry.label, image.path, entry.part, sha256)


def _check_complete(benchmark: Benchmark, root: Path, items: Sequence[Item]) -> None:
    found = counted((item.domain, item.label) for item in items)
    domains = {domain for domain, _ in found}
    for domain in benchmark.domains:
        if domain not in domains:
            raise DataError(
                f"{root} has no images of domain {domain!r} of {benchmark.title}; get it, or name "
                "the folder that holds all domains"
            )
        for label in benchmark.classes:
            if not found[domain, label]:
                raise DataError(
                    f"domain {domain!r} in {root} has no images of class {label!r}; get them: "
                    f"{benchmark.title} has {benchmark.official(domain, label)}"
                )


def _not_loadable(benchmark: Benchmark, root: Path) -> DataError:
    """Return why there are no files to train on, where what is there can be made into some."""
    files = [root] if root.is_file() else list(walk(root).files)
    for path in files:
        if path.suffix.lower() in CONTAINERS:
            return DataError(
                f"{path} holds many images in one file; {_import_first(benchmark, root)}"
            )
    return _nothing(benchmark, root, None)


def _import_first(benchmark: Benchmark, source: Path) -> str:
    return f"import it first: cicf data import {benchmark.name} {source} DEST"


def _nothing(benchmark: Benchmark, root: Path, found: Found | None) -> DataError:
    """Return the error of a place without the benchmark: what is there, and what would do."""
    tree = walk(root)
    folders = sorted(
        {path.relative_to(root).parts[0] for path in tree.files if path.parent != root}
    )
    archives = [path.name for path in tree.files if path.suffix.lower() in ARCHIVES]
    containers = [path.name for path in tree.files if path.suffix.lower() in CONTAINERS]
    lists = list_files(benchmark, tree.files)
    there = [
        f"the folders {some(folders)}" if folders else "no folder",
        f"{len(tree.images)} images",
    ]
    there += [f"the list files {some(path.name for path in lists)}"] if lists else []
    there += [f"the files {some(containers)}"] if containers else []
    there += [f"the archives {some(archives)}, to be imported first"] if archives else []
    reason = f" ({found.problems[0]})" if found is not None and found.problems else ""
    return DataError(
        f"{root} holds no images of {benchmark.title}{reason} but {', '.join(there)}; name a "
        "folder with domain/class/image or domain/train/class/image, where domain is one of "
        f"{', '.join(benchmark.domains)}, with list files or without, or with HDF5 or parquet files"
    )
