"""Fetching from the Hugging Face hub; what is downloaded is written here, in its form."""

import io
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from PIL import Image

from cicf import DataError
from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.fetch import fetch_benchmark

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")


def silent(stage: str, done: int, total: int) -> None:
    """Take no notice of progress."""


def hub_copy(repository: str, folder: Path) -> None:
    """Write what the hub holds of PACS, with an image for each class of a domain."""
    assert repository == "flwrlabs/pacs"
    written = io.BytesIO()
    Image.new("RGB", (4, 4)).save(written, format="JPEG")
    rows = [
        {"image": {"bytes": written.getvalue(), "path": None}, "domain": domain, "label": label}
        for domain in DOMAINS
        for label in range(7)
    ]
    features = {"label": {"names": CLASSES, "_type": "ClassLabel"}}
    notes = {"huggingface": json.dumps({"info": {"features": features}})}
    (folder / "data").mkdir()
    (folder / ".cache" / "huggingface").mkdir(parents=True)
    (folder / ".cache" / "huggingface" / "a.parquet").write_bytes(b"of no use")
    (folder / "README.md").write_text("# PACS")
    table = pa.Table.from_pylist(rows).replace_schema_metadata(notes)
    pq.write_table(table, folder / "data" / "train-00000-of-00001.parquet")


def test_what_was_downloaded_is_imported(tmp_path: Path) -> None:
    dest = tmp_path / "new" / "pacs"
    found = fetch_benchmark(benchmark("pacs"), dest, on_image=silent, download=hub_copy)
    assert found.domains == dict.fromkeys(DOMAINS, 7)
    assert found.layout == "parquet tables of Hugging Face"
    assert (dest / "photo" / "elephant" / "00015.jpg").is_file()
    assert [path.name for path in dest.parent.iterdir()] == ["pacs"]


def test_a_benchmark_without_a_copy_says_where_to_get_it(tmp_path: Path) -> None:
    digits = benchmark("digits-dg")
    assert digits.hub is None
    with pytest.raises(DataError, match="no complete copy on Hugging Face") as told:
        fetch_benchmark(digits, tmp_path / "a", on_image=silent)
    for place in digits.obtained:
        assert place in str(told.value)
    assert str(told.value).endswith(f"cicf data import digits-dg SOURCE {tmp_path / 'a'}")


def test_offline_mode_is_told_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What HF_HUB_OFFLINE=1 sets, which is read once for each process.
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="because HF_HUB_OFFLINE is set") as told:
        fetch_benchmark(benchmark("pacs"), tmp_path / "new" / "pacs", on_image=silent)
    assert "\n" not in str(told.value)
    assert f"cicf data import pacs SOURCE {tmp_path / 'new' / 'pacs'}" in str(told.value)
    assert list(tmp_path.iterdir()) == []


@contextmanager
def hub_that_answers(status: int) -> Iterator[str]:
    """Give the address of a hub that has one answer to everything."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if status == HTTPStatus.NOT_FOUND:
                self.send_header("X-Error-Code", "RepoNotFound")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (HTTPStatus.NOT_FOUND, "the hub has no such data set, or asks for a login"),
        (HTTPStatus.FORBIDDEN, "the hub answered 403"),
    ],
)
def test_a_hub_that_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, cause: str
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with hub_that_answers(status) as address:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        with pytest.raises(DataError, match=f"because {cause}"):
            fetch_benchmark(benchmark("pacs"), tmp_path / "pacs", on_image=silent)
    assert list(tmp_path.iterdir()) == []


def test_a_hub_that_is_not_there_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with hub_that_answers(200) as gone:
        monkeypatch.setattr(constants, "ENDPOINT", gone)
    with pytest.raises(DataError, match="because the hub cannot be reached from here"):
        fetch_benchmark(benchmark("pacs"), tmp_path / "pacs", on_image=silent)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_downloaded_for_a_folder_that_exists(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")

    def unwanted(repository: str, folder: Path) -> None:
        pytest.fail(f"{repository} was downloaded to {folder}")

    with pytest.raises(DataError, match="exists and is not empty"):
        fetch_benchmark(benchmark("pacs"), tmp_path, on_image=silent, download=unwanted)


def test_a_copy_without_domains_names_the_hub(tmp_path: Path) -> None:
    def without_domains(repository: str, folder: Path) -> None:
        hub_copy(repository, folder)
        path = folder / "data" / "train-00000-of-00001.parquet"
        pq.write_table(pq.read_table(path).drop_columns("domain"), path)

    with pytest.raises(DataError, match=r"Hugging Face flwrlabs/pacs/data/train-.* no column"):
        fetch_benchmark(
            benchmark("pacs"), tmp_path / "pacs", on_image=silent, download=without_domains
        )
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupted(repository: str, folder: Path) -> None:
        (folder / repository.replace("/", "-")).write_bytes(b"PAR1")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_benchmark(
            benchmark("pacs"), tmp_path / "new" / "a", on_image=silent, download=interrupted
        )
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DataError, match=r"needs the extra data; .* pip install 'cicf\[data\]'"):
        fetch_benchmark(benchmark("pacs"), tmp_path / "pacs", on_image=silent)
