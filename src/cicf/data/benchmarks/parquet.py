"""Benchmarks in tables of Hugging Face: parquet, and the arrow files of `save_to_disk`.

A row has an image as bytes, the name of its domain, and its class, as a name or as a number whose
names stand in the table's metadata. Classes are matched by name: their order is up to whoever made
the table.
"""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import accumulate
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from PIL import Image, UnidentifiedImageError

from cicf.core import DataError
from cicf.data.benchmarks.entries import Entry, Found
from cicf.data.benchmarks.extras import needs_extra_data
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.folder import ENDINGS

if TYPE_CHECKING:
    import pyarrow as pa

TABLE_ENDINGS = (".parquet", ".arrow")
IMAGE_COLUMNS = ("image", "img")
LABEL_COLUMNS = ("label", "labels", "class", "category")
DOMAIN_COLUMNS = ("domain", "domain_name", "style")


def read_tables(benchmark: Benchmark, files: Sequence[Path]) -> Found:
    """Return what the rows of all files hold together; no image is read before it is asked for."""
    rows: list[_Row] = []
    unknown: Counter[str] = Counter()
    for path in files:
        table = _surveyed(path, benchmark)
        for place, (domain, label, image_path) in enumerate(table.rows):
            number = len(rows) + unknown.total()
            our_domain, our_label = benchmark.domain(domain), benchmark.label(label)
            if our_domain is None or our_label is None:
                kind, value = ("domain", domain) if our_domain is None else ("class", label)
                unknown[f"{value!r}, which is no {kind} of {benchmark.title}"] += 1
                continue
            image = TableBytes(table.blocks, place)
            rows.append(_Row(our_domain, our_label, image_path, image, number))
    problems = tuple(
        f"{count} row{'s are' if count > 1 else ' is'} of {what}; left out"
        for what, count in unknown.items()
    )
    kind = "arrow" if files[0].suffix.lower() == ".arrow" else "parquet"
    return Found(f"{kind} tables of Hugging Face", tuple(_entries(rows)), (), problems)


class _Row(NamedTuple):
    domain: str
    label: str
    path: str | None
    image: "TableBytes"
    number: int
    """Its place among the rows of all files."""


def _entries(rows: Sequence[_Row]) -> Iterator[Entry]:
    names = [_plain_name(row.path) for row in rows]
    folders = [(row.domain, row.label) for row in rows]
    keys = [
        (*folder, name and name.casefold()) for folder, name in zip(folders, names, strict=True)
    ]
    count = Counter(keys)
    for row, name, key in zip(rows, names, keys, strict=True):
        if name is None or count[key] > 1:
            ending = PurePosixPath(name).suffix if name else _ending(row.image.read())
            name = f"{row.number:05d}{ending}"
        yield Entry(row.domain, row.label, name, None, row.image)


def _plain_name(path: str | None) -> str | None:
    """Return the name of an image's file, if there is one that is safe to give to a file."""
    name = (path if isinstance(path, str) else "").replace("\\", "/").rpartition("/")[2]
    is_plain = name.isprintable() and not name.startswith(".") and len(name.encode()) < 200
    return name if is_plain and PurePosixPath(name).suffix.lower() in ENDINGS else None


def _ending(content: bytes) -> str:
    try:
        with Image.open(BytesIO(content)) as image:
            kind = str(image.format).lower()
    except (UnidentifiedImageError, OSError):
        return ".jpg"
    return f".{kind.replace('jpeg', 'jpg')}"


class _Table(NamedTuple):
    rows: list[tuple[str, str, str | None]]
    """The names of domain, class and file, as the table has them."""
    blocks: "_Blocks"


def _surveyed(path: Path, benchmark: Benchmark) -> _Table:
    with _told(path):
        schema, sizes = _shape(path)
        image = _column(path, schema.names, IMAGE_COLUMNS, "the image")
        label = _column(path, schema.names, LABEL_COLUMNS, "the class")
        domain = _column(
            path,
            schema.names,
            DOMAIN_COLUMNS,
            f"the domain, without which {benchmark.title} is of no use here",
        )
        fields = {field.name for field in _fields(path, schema.field(image).type)}
        small = _read(path, [label, domain, *([f"{image}.path"] if "path" in fields else [])])
        features = _features(path, schema)
        domains = _names(path, small.column(domain), features.get(domain), domain)
        labels = _names(path, small.column(label), features.get(label), label)
        paths = _paths(small, image) if "path" in fields else [None] * len(labels)
    return _Table(list(zip(domains, labels, paths, strict=True)), _Blocks(path, image, sizes))


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Say in a sentence that pyarrow is missing, or that it cannot read a file."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise needs_extra_data(str(path)) from error
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise DataError(f"{path} cannot be read as a table ({reason}); get it again") from error


def _column(path: Path, names: Sequence[str], known: Sequence[str], what: str) -> str:
    for name in known:
        if name in names:
            return name
    raise DataError(
        f"{path} has no column for {what}; its columns are {', '.join(map(repr, names))}, and one "
        f"must be called {' or '.join(known)}"
    )


def _fields(path: Path, kind: "pa.DataType") -> "list[pa.Field]":
    import pyarrow as pa

    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return []
    fields = [kind.field(place) for place in range(kind.num_fields)]
    if "bytes" not in {field.name for field in fields}:
        raise DataError(
            f"the images of {path} are {kind}; they must be encoded bytes, or a struct with bytes"
        )
    return fields


def _paths(table: "pa.Table", image: str) -> list[str | None]:
    import pyarrow.compute as pc

    found: list[str | None] = pc.struct_field(table.column(image), "path").to_pylist()
    return found


def _features(path: Path, schema: "pa.Schema") -> dict[str, dict[str, object]]:
    """Return what Hugging Face says of the columns, in the table or in a file beside it."""
    beside = path.parent / "dataset_info.json"
    texts = [(schema.metadata or {}).get(b"huggingface", b"{}")]
    if beside.is_file():
        texts.append(beside.read_bytes())
    for text in texts:
        try:
            info = json.loads(text)
            features = info.get("info", info).get("features")
        except (ValueError, AttributeError) as error:
            raise DataError(
                f"the metadata of {path} is no JSON of Hugging Face ({error}); get it again"
            ) from error
        if isinstance(features, dict):
            return features
    return {}


def _names(
    path: Path, column: "pa.ChunkedArray", feature: dict[str, object] | None, what: str
) -> list[str]:
    """Return the values of a column as names; numbers need the names that belong to them."""
    values = column.to_pylist()
    if all(value is None or isinstance(value, str) for value in values):
        return [str(value) for value in values]
    names = feature.get("names") if isinstance(feature, dict) else None
    if not isinstance(names, list):
        raise DataError(
            f"the column {what!r} of {path} is {column.type} without names in the metadata; "
            "classes and domains are matched by name, so get a copy that has them"
        )
    return [
        str(names[value]) if isinstance(value, int) and 0 <= value < len(names) else str(value)
        for value in values
    ]


class _Blocks:
    """Reads images of a table, a group of rows at a time, and keeps the last group."""

    def __init__(self, path: Path, image: str, sizes: Sequence[int]) -> None:
        self.path, self.image = path, image
        self.starts = [0, *accumulate(sizes)]
        self.number, self.block = -1, None

    def content(self, row: int) -> bytes:
        """Return the encoded bytes of the image in a row."""
        number = bisect_right(self.starts, row) - 1
        with _told(self.path):
            if number != self.number:
                self.block, self.number = _read(self.path, [self.image], number), number
            assert self.block is not None
            value = self.block.column(0)[row - self.starts[number]].as_py()
        content = value.get("bytes") if isinstance(value, dict) else value
        if not isinstance(content, bytes):
            raise DataError(
                f"row {row} of {self.path} has no bytes of an image, at most a path to a file; "
                "get a copy with the images inside"
            )
        return content


@dataclass(frozen=True, slots=True)
class TableBytes:
    """Is an image in a row of a table."""

    blocks: _Blocks
    row: int

    def read(self) -> bytes:
        """Return the bytes as they are in the table."""
        return self.blocks.content(self.row)


def _shape(path: Path) -> "tuple[pa.Schema, list[int]]":
    """Return the columns of a table, and the sizes of the groups in which its rows are stored."""
    if path.suffix.lower() == ".arrow":
        table = _mapped(path)
        return table.schema, [batch.num_rows for batch in table.to_batches()]
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups = range(file.metadata.num_row_groups)
        return file.schema_arrow, [file.metadata.row_group(group).num_rows for group in groups]


def _read(path: Path, columns: list[str], group: int | None = None) -> "pa.Table":
    if path.suffix.lower() == ".arrow":
        import pyarrow as pa

        table = _mapped(path).select(list(dict.fromkeys(c.partition(".")[0] for c in columns)))
        return table if group is None else pa.Table.from_batches([table.to_batches()[group]])
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        return file.read(columns) if group is None else file.read_row_group(group, columns)


def _mapped(path: Path) -> "pa.Table":
    """Return a table that stays on the disk; pages come to memory as they are looked at."""
    import pyarrow as pa

    source = pa.memory_map(str(path))
    is_stream = source.read(6) != b"ARROW1"
    source.seek(0)
    return (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(source).read_all()
