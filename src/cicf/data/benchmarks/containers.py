"""Benchmarks in files that hold many images: HDF5, and the tables of Hugging Face."""

import os
from pathlib import Path

from cicf.core import DataError
from cicf.data.benchmarks.entries import Found
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.hdf5 import read_hdf5
from cicf.data.benchmarks.parquet import TABLE_ENDINGS, read_tables

HDF5_ENDINGS = (".hdf5", ".h5")
CONTAINER_ENDINGS = (*HDF5_ENDINGS, *TABLE_ENDINGS)


def read_containers(benchmark: Benchmark, root: Path) -> Found | None:
    """Return what HDF5, parquet or arrow files at or below `root` hold; None if there are none."""
    files = container_files(root)
    if not files:
        return None
    hdf5 = [path for path in files if path.suffix.lower() in HDF5_ENDINGS]
    if not hdf5:
        return read_tables(benchmark, files)
    if len(hdf5) < len(files):
        table = next(path for path in files if path not in hdf5)
        raise DataError(
            f"{root} holds HDF5 files ({hdf5[0].name}) and tables ({table.name}), which may be "
            "the same images twice; name a folder with one kind"
        )
    return read_hdf5(benchmark, hdf5)


def container_files(root: Path) -> list[Path]:
    """Return the files with the ending of a container, in the order of their paths.

    Hidden ones do not count, nor do the results that Hugging Face keeps beside a data set.
    """
    if root.is_file():
        return [root] if root.suffix.lower() in CONTAINER_ENDINGS else []
    found = []
    for folder, folders, names in os.walk(root, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [
            Path(folder, name)
            for name in names
            if Path(name).suffix.lower() in CONTAINER_ENDINGS
            and not name.startswith((".", "cache-"))
        ]
    return sorted(found)
