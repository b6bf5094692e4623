"""Fetch of a benchmark from the Hugging Face hub, where there is a complete copy of it."""

import os
from collections.abc import Callable
from pathlib import Path

from cicf.core import DataError
from cicf.data.benchmarks.dest import check_new, cleared, scratch, told_if_full
from cicf.data.benchmarks.extras import needs_extra_data
from cicf.data.benchmarks.facts import Benchmark
from cicf.data.benchmarks.importing import Imported, Progress, import_benchmark

SECONDS_TO_ANSWER = 10.0


class UnreachableError(Exception):
    """Says in plain words why a copy cannot be had: the end of a sentence with `because`."""


def download(repository: str, folder: Path) -> None:
    """Download a data set of the Hugging Face hub into a folder."""
    try:
        from huggingface_hub import constants, errors, snapshot_download
    except ImportError as error:
        raise needs_extra_data("fetching from Hugging Face") from error
    # The library below, whose errors these are, differs between versions.
    of_http: type[BaseException] = errors.HfHubHTTPError.__bases__[0]
    of_xet: type[BaseException] = getattr(errors, "XetDownloadError", RuntimeError)
    try:
        snapshot_download(
            repository, repo_type="dataset", local_dir=folder, etag_timeout=SECONDS_TO_ANSWER
        )
    except errors.RepositoryNotFoundError as error:
        raise UnreachableError("the hub has no such data set, or asks for a login") from error
    except (of_http, of_xet, errors.EntryNotFoundError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        if constants.HF_HUB_OFFLINE:
            raise UnreachableError("HF_HUB_OFFLINE is set (unset it to download)") from error
        # A refusal may come as the cause of an error that says nothing was found here either.
        for each in (error, error.__cause__):
            if isinstance(each, errors.HfHubHTTPError):
                raise UnreachableError(f"the hub answered {each.response.status_code}") from error
        raise UnreachableError("the hub cannot be reached from here") from error


def fetch_benchmark(
    benchmark: Benchmark,
    dest: Path,
    *,
    on_image: Progress,
    skips_unreadable: bool = False,
    download: Callable[[str, Path], None] = download,
) -> Imported:
    """Download a benchmark and import it to `dest`, or leave nothing there."""
    dest = Path(os.path.abspath(dest))
    elsewhere = f"get it from {', or '.join(benchmark.obtained)}"
    then = f"then run: cicf data import {benchmark.name} SOURCE {dest}"
    if benchmark.hub is None:
        raise DataError(
            f"{benchmark.title} has no complete copy on Hugging Face; {elsewhere}, {then}"
        )
    check_new(dest)
    with told_if_full(dest), cleared(dest), scratch(dest, "download") as folder:
        try:
            download(benchmark.hub, folder)
        except UnreachableError as error:
            raise DataError(
                f"{benchmark.title} cannot be fetched from Hugging Face ({benchmark.hub}) because "
                f"{error}; {elsewhere}, {then}"
            ) from error
        try:
            return import_benchmark(
                benchmark, folder, dest, on_image=on_image, skips_unreadable=skips_unreadable
            )
        except DataError as error:
            told = str(error).replace(str(folder), f"Hugging Face {benchmark.hub}")
            raise DataError(told) from error
