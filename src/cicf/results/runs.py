"""Finished runs, found below folders; what is not shown is named."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from cicf.core import CicfError, ResultError
from cicf.core.frozen import Frozen
from cicf.results.folder import RunFolder
from cicf.results.record import Record

DEPTH = 3
"""How far below a folder its runs may lie."""


class FoundRun(Frozen):
    """Holds a finished run, and where it was found."""

    path: Path
    record: Record


class Runs(Frozen):
    """Holds the finished runs, and a sentence for each that was found and cannot be shown."""

    found: tuple[FoundRun, ...]
    skipped: tuple[str, ...]


def read_runs(paths: Sequence[Path]) -> Runs:
    """Return the runs of folders, each of which is a run or holds some, up to three levels down."""
    found: dict[Path, FoundRun] = {}
    skipped: dict[Path, str] = {}
    for path in paths:
        if not path.is_dir():
            raise ResultError(f"{path} is no folder; name the folder of a run, or one of runs")
        for folder in _folders(path, DEPTH, skipped):
            # Folders may be named twice, by themselves and by what they lie in.
            place = folder.resolve()
            try:
                found[place] = FoundRun(path=folder, record=_record(folder))
            except (CicfError, OSError) as error:
                skipped[place] = str(error)
    if not found and not skipped:
        named = ", ".join(map(str, paths))
        raise ResultError(
            f"there is no run in {named}, nor up to {DEPTH} levels below; a run is a folder with "
            "config.json and result.json, as cicf train leaves it"
        )
    return Runs(found=tuple(found.values()), skipped=tuple(skipped.values()))


def _folders(path: Path, depth: int, skipped: dict[Path, str]) -> Iterator[Path]:
    """Yield the folders of runs, finished or not, in the order of their names."""
    run = RunFolder(path)
    try:
        if run.has_run or run.is_finished:
            yield path
            return
        below = sorted(path.iterdir()) if depth else []
    except OSError as error:
        skipped[path.resolve()] = f"{path} cannot be read ({error.strerror}); check its permissions"
        return
    for each in below:
        # What is not whole yet has a hidden name.
        if each.is_dir() and not each.name.startswith("."):
            yield from _folders(each, depth - 1, skipped)


def _record(folder: Path) -> Record:
    run = RunFolder(folder)
    if not run.is_finished:
        raise ResultError(
            f"{folder} has no result.json, so the run has not ended; finish it with --resume"
        )
    return run.record()
