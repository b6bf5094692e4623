"""Import of a benchmark: from whatever it arrived as, to one layout with a manifest of hashes."""

import hashlib
import json
import os
import re
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath

from cicf.core import DataError
from cicf.core.files import new_folder, remove_abandoned, write_text
from cicf.data.benchmarks.archives import extract, is_archive
from cicf.data.benchmarks.containers import container_files
from cicf.data.benchmarks.counts import counted, differences
from cicf.data.benchmarks.dest import check_new, cleared, scratch, told_if_full
from cicf.data.benchmarks.entries import Entry, FileBytes, Found
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.imported import RECORD
from cicf.data.benchmarks.layouts import load_benchmark, read_benchmark
from cicf.data.fingerprint import fingerprint
from cicf.data.images import is_image
from cicf.data.manifest import ManifestRow, write_manifest
from cicf.data.tree import walk

Progress = Callable[[str, int, int], None]
"""Is told what is going on, how many files are done, and of how many."""
LISTS = (".txt", ".csv")
"""Endings of the files that may say, beside an archive, what split its images are of."""


@dataclass(frozen=True, slots=True)
class Imported:
    """Holds what an import has left."""

    folder: Path
    layout: str
    """What it was read from, in a few words."""
    domains: dict[str, int]
    """The number of images by domain."""
    fingerprint: str
    notes: tuple[str, ...]
    """What is remarkable, and what was wrong without being a reason to stop."""

    @property
    def images(self) -> int:
        """Return the number of images."""
        return sum(self.domains.values())


def import_benchmark(
    benchmark: Benchmark,
    source: Path,
    dest: Path,
    *,
    on_image: Progress,
    skips_unreadable: bool = False,
) -> Imported:
    """Write a benchmark to `dest` as domain/class/image with a manifest, or leave nothing there.

    `source` is a folder in any layout, an archive, a folder of archives, or HDF5, parquet or arrow
    files. Bytes of images stay as they are; every image is decoded once.
    """
    dest = Path(os.path.abspath(dest))
    _check_places(source, dest)
    remove_abandoned(dest)
    with told_if_full(dest), cleared(dest), _unpacked(source, dest, on_image) as place:
        try:
            found = read_benchmark(benchmark, place)
            _check_complete(benchmark, source, found.entries)
            found = _without(found, place, source)
            return _written(
                benchmark,
                found,
                dest,
                on_image,
                skips_unreadable=skips_unreadable,
                moves=place != source,
            )
        except DataError as error:
            # What was unpacked or half written is gone when this is read.
            told = _hidden(dest).sub(lambda _: str(source), str(error))
            raise DataError(told) from error


def _hidden(dest: Path) -> re.Pattern[str]:
    """Return the pattern of our own temporary folders beside a place."""
    return re.compile(rf"{re.escape(str(dest.parent))}/\.[^\s/]*\.part(/\d+)?")


def _check_places(source: Path, dest: Path) -> None:
    if not source.exists():
        raise DataError(f"{source} does not exist; name a folder, an archive or a file of images")
    check_new(dest)
    if source.is_dir() and dest.resolve().is_relative_to(source.resolve()):
        raise DataError(f"{dest} lies in {source}, which is read; name a folder outside of it")


@contextmanager
def _unpacked(source: Path, dest: Path, on_image: Progress) -> Iterator[Path]:
    """Give the folder or file to read: the source, or a folder into which it was unpacked."""
    archives = _archives(source)
    if not archives:
        yield source
        return
    with scratch(dest, "unpacked") as folder:
        for number, path in enumerate(archives):
            # The name is kept, as it may be that of a domain.
            _unpack(path, folder / str(number) / path.name.partition(".")[0], on_image)
        for path in walk(source).files if source.is_dir() else ():
            if path.suffix.lower() in LISTS and path not in archives:
                beside = folder / "beside" / path.relative_to(source)
                beside.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, beside)
        yield folder


def _unpack(archive: Path, place: Path, on_image: Progress) -> None:
    place.mkdir(parents=True)
    extract(archive, place, lambda done, of: on_image(f"unpacking {archive.name}", done, of))


def _archives(source: Path) -> list[Path]:
    """Return the archives to unpack: none where the images lie there already."""
    if source.is_file():
        return [source] if not container_files(source) and is_archive(source) else []
    tree = walk(source)
    if container_files(source) or any(path.parent != source for path in tree.images):
        return []
    return [path for path in tree.files if is_archive(path)]


def _check_complete(benchmark: Benchmark, source: Path, entries: Sequence[Entry]) -> None:
    there = {(entry.domain, entry.label) for entry in entries}
    for domain in benchmark.domains:
        missing = [label for label in benchmark.classes if (domain, label) not in there]
        if len(missing) == len(benchmark.classes):
            raise DataError(
                f"{source} has no image of the domain {domain!r} of {benchmark.title}; name the "
                f"place that holds all of {', '.join(benchmark.domains)}"
            )
        if missing:
            raise DataError(
                f"{source} has no image of the class {missing[0]!r} in {domain!r}; "
                f"{benchmark.title} has {len(benchmark.classes)} classes, so get a complete copy"
            )


def _without(found: Found, place: Path, source: Path) -> Found:
    """Return the same with notes that name the source, not where it was unpacked."""
    notes, problems = (
        tuple(text.replace(str(place), str(source)) for text in texts)
        for texts in (found.notes, found.problems)
    )
    return replace(found, notes=notes, problems=problems)


def _written(
    benchmark: Benchmark,
    found: Found,
    dest: Path,
    on_image: Progress,
    *,
    skips_unreadable: bool,
    moves: bool,
) -> Imported:
    with new_folder(dest) as folder:
        rows, bad = _copied(found.entries, folder, on_image, moves=moves)
        if bad:
            _check_readable(benchmark, bad, len(found.entries), skips_unreadable=skips_unreadable)
        write_manifest(folder, rows)
        off = differences(benchmark, counted((row.domain, row.label) for row in rows))
        imported = Imported(
            dest,
            found.layout,
            dict(Counter(row.domain for row in rows)),
            fingerprint(load_benchmark(benchmark, folder)[0]),
            (
                *found.notes,
                *found.problems,
                *([f"counts differ from the official ones: {'; '.join(off)}"] if off else []),
                *([f"left out {len(bad)} images, unreadable: {', '.join(bad)}"] if bad else []),
            ),
        )
        _write_record(benchmark, imported, folder)
    return imported


def _copied(
    entries: Sequence[Entry], folder: Path, on_image: Progress, *, moves: bool
) -> tuple[list[ManifestRow], list[str]]:
    """Write the images; return the manifest, and by their own names those that do not decode."""
    rows, bad = [], []
    for done, (entry, name) in enumerate(zip(entries, _names(entries), strict=True), start=1):
        path = PurePath(entry.domain, entry.label, name)
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        content = entry.image.read()
        if not is_image(content):
            bad.append(f"{entry.domain}/{entry.label}/{entry.name}")
        else:
            _place(entry, content, file, moves=moves)
            sha256 = hashlib.sha256(content).hexdigest()
            rows.append(
                ManifestRow(path.as_posix(), entry.label, entry.domain, entry.part or "", sha256)
            )
        on_image("importing", done, len(entries))
    return rows, bad


def _place(entry: Entry, content: bytes, file: Path, *, moves: bool) -> None:
    """Write an image, or move it where it lies in a file that was unpacked for this only."""
    if moves and isinstance(entry.image, FileBytes):
        entry.image.path.replace(file)
    else:
        file.write_bytes(content)


def _names(entries: Sequence[Entry]) -> list[str]:
    """Return names for files, on disks that tell case apart and on disks that do not.

    A name that is there twice in a folder gets its part in front, or else a number at its end.
    """
    count = Counter(_key(entry, entry.name) for entry in entries)
    taken = {key for key, times in count.items() if times == 1}
    names = []
    for entry in entries:
        name = entry.name
        if count[_key(entry, name)] > 1:
            name = base = f"{entry.part}_{name}" if entry.part else name
            number = 1
            while _key(entry, name) in taken:
                number += 1
                name = f"{PurePath(base).stem}_{number}{PurePath(base).suffix}"
            taken.add(_key(entry, name))
        names.append(name)
    return names


def _key(entry: Entry, name: str) -> tuple[str, str, str]:
    return entry.domain, entry.label, unicodedata.normalize("NFC", name).casefold()


def _check_readable(
    benchmark: Benchmark, bad: Sequence[str], total: int, *, skips_unreadable: bool
) -> None:
    if len(bad) == total:
        raise DataError(
            f"none of the {total} images of {benchmark.title} can be read; get it again"
        )
    if skips_unreadable:
        return
    known = [name for name in bad if name in benchmark.faulty]
    why = f" ({known[0]} is broken in some copies of {benchmark.title})" if known else ""
    raise DataError(
        f"{len(bad)} of {total} images cannot be read, the first is {bad[0]}{why}; get a better "
        "copy, or pass --skip-unreadable"
    )


def _write_record(benchmark: Benchmark, imported: Imported, folder: Path) -> None:
    record = {
        "name": benchmark.name,
        "title": benchmark.title,
        "layout": imported.layout,
        "images": imported.images,
        "fingerprint": imported.fingerprint,
        "notes": imported.notes,
    }
    write_text(folder / RECORD, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
