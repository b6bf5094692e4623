"""Manifests: a .csv or .jsonl file with a row for each image, `path,label[,domain][,split]`."""

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from cicf.core import DataError
from cicf.core.files import replacing
from cicf.data.domains import DomainDataset, Part
from cicf.data.folder import ONLY_DOMAIN
from cicf.data.items import Item, Unreadable, check_classes, dataset_of, readable

MANIFEST = "manifest.csv"
"""The name of the manifest of an imported benchmark."""
SPLITS: dict[str, Part | None] = {
    "": None,
    "train": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "crossval": "validation",
    "test": "test",
}
"""The words of the column `split`."""


class ManifestRow(NamedTuple):
    """Is a row of a manifest; what is not known is empty."""

    path: str
    """Relative to the manifest's folder, or absolute."""
    label: str
    domain: str = ""
    split: str = ""
    sha256: str = ""


def load_manifest(
    path: Path, *, unreadable: Unreadable = "refused", is_for_training: bool = True
) -> DomainDataset:
    """Return the images that a manifest lists, classes and domains in alphabetical order.

    Every image is decoded once; one that has a `sha256` is compared with it instead.
    """
    items = manifest_items(path)
    check_files(items, path)
    data = dataset_of(readable(items, path, unreadable=unreadable))
    if is_for_training:
        check_classes(data, path)
    return data


def manifest_items(path: Path) -> list[Item]:
    """Return the images of a manifest in its order; whether their files exist is not looked at."""
    readers = {".csv": _csv_rows, ".jsonl": _json_rows}
    if path.suffix.lower() not in readers:
        raise DataError(f"{path} is no manifest; its name must end in .csv or .jsonl")
    if not path.is_file():
        raise DataError(f"{path} is no file; name a manifest that exists")
    lines: dict[str, int] = {}
    items = []
    for line, row in readers[path.suffix.lower()](path):
        file = path.parent / row.path
        # However it is spelled, and through whatever link.
        real = os.path.realpath(file)
        if real in lines:
            _refuse(path, line, f"{row.path!r} is in line {lines[real]} already; keep one of them")
        lines[real] = line
        items.append(_item(path, line, row, file))
    if not items:
        raise DataError(f"{path} lists no image; give it a line `path,label` for each")
    return _with_domains(path, items)


def check_files(items: Sequence[Item], path: Path) -> None:
    """Refuse a manifest with files that are not there."""
    missing = [item.path for item in items if not item.path.is_file()]
    if missing:
        raise DataError(
            f"{len(missing)} of the {len(items)} images in {path} do not exist, the first is "
            f"{missing[0]}; bring them back, or correct the manifest"
        )


def write_manifest(folder: Path, rows: Iterable[ManifestRow]) -> None:
    """Write the manifest of a folder, whole or not at all."""
    with (
        replacing(folder / MANIFEST) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(ManifestRow._fields)
        writer.writerows(rows)


def is_own_manifest(path: Path) -> bool:
    """Tell whether a file has the columns that `write_manifest` gives it."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.readline(200).rstrip() == ",".join(ManifestRow._fields).encode()


def _csv_rows(path: Path) -> Iterator[tuple[int, ManifestRow]]:
    # A file that Excel wrote begins with a mark, which utf-8-sig takes off.
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            columns = [name.strip().lower() for name in reader.fieldnames or []]
            _check_columns(path, columns)
            reader.fieldnames = columns
            for cells in reader:
                if None in cells or None in cells.values():
                    found = sum(value is not None for value in cells.values())
                    rule = f"but the first line names {len(columns)} columns"
                    more = "more" if None in cells else str(found)
                    _refuse(
                        path, reader.line_num, f"it has {more} cells, {rule}; quote or add some"
                    )
                yield reader.line_num, _row(path, reader.line_num, cells)
        except UnicodeDecodeError as error:
            raise _no_text(path) from error
        except csv.Error as error:
            _refuse(path, reader.reader.line_num, f"it is no CSV ({error}); repair it")


def _check_columns(path: Path, columns: Sequence[str]) -> None:
    for name in ("path", "label"):
        if name not in columns:
            found = ", ".join(map(repr, columns)) or "nothing"
            raise DataError(
                f"{path} has no column {name!r} but {found}; its first line must name the columns, "
                "path,label and, if there are any, domain and split, separated by commas"
            )
    for name in columns:
        if columns.count(name) > 1:
            raise DataError(f"{path} has {columns.count(name)} columns {name!r}; keep one of them")


def _json_rows(path: Path) -> Iterator[tuple[int, ManifestRow]]:
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise _no_text(path) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except (ValueError, RecursionError) as error:
            _refuse(path, number, f"it is no JSON ({error!s:.60}); repair it")
        if not isinstance(cells, dict):
            _refuse(path, number, 'it is no object; write {"path": …, "label": …}')
        yield number, _row(path, number, cells)


def _row(path: Path, line: int, cells: Mapping[str, object]) -> ManifestRow:
    """Return a row by the names of its columns; numbers in JSON may be labels."""
    values = []
    for name in ManifestRow._fields:
        value = cells.get(name)
        if isinstance(value, bool) or not isinstance(value, str | int | None):
            _refuse(path, line, f"{name} is {value!r:.40}; it must be a text")
        text = "" if value is None else str(value)
        values.append(text if name == "path" else text.strip())
    row = ManifestRow(*values)
    for name, text in (("path", row.path), ("label", row.label)):
        if not text:
            _refuse(path, line, f"{name} is missing or empty; fill it in")
    return row


def _item(path: Path, line: int, row: ManifestRow, file: Path) -> Item:
    split = row.split.strip().lower()
    if split not in SPLITS:
        _refuse(path, line, f"split is {row.split!r}; it must be train, val or test, or empty")
    return Item(row.domain, row.label, file, SPLITS[split], row.sha256.lower())


def _with_domains(path: Path, items: list[Item]) -> list[Item]:
    without = [item for item in items if not item.domain]
    if not without:
        return items
    if len(without) < len(items):
        raise DataError(
            f"{len(without)} of the {len(items)} images in {path} have no domain, the first is "
            f"{without[0].path}; name the domain of all or of none"
        )
    return [item._replace(domain=ONLY_DOMAIN) for item in items]


def _refuse(path: Path, line: int, reason: str) -> NoReturn:
    raise DataError(f"line {line} of {path} cannot be used: {reason}")


def _no_text(path: Path) -> DataError:
    return DataError(f"{path} is not in UTF-8; save it in that encoding")
