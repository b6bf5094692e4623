"""Runs found below folders: the finished ones, and a sentence for every other."""

from pathlib import Path

import pytest
from tests.support.records import run, write

from cicf.core import ResultError
from cicf.results import RunFolder
from cicf.results.runs import read_runs


def test_the_folder_of_a_run_is_read(tmp_path: Path) -> None:
    made = run(70.0)
    path = write(tmp_path, made)
    (found,) = read_runs([path]).found
    assert (found.path, found.record) == (path, made.record)


@pytest.mark.parametrize("between", ["", "a", "a/b"])
def test_runs_are_found_up_to_three_levels_down(tmp_path: Path, between: str) -> None:
    path = write(tmp_path / between, run(70.0))
    assert [each.path for each in read_runs([tmp_path]).found] == [path]


def test_runs_four_levels_down_are_not_found(tmp_path: Path) -> None:
    write(tmp_path / "a" / "b" / "c", run(70.0))
    with pytest.raises(ResultError, match=r"there is no run in .* up to 3 levels below"):
        read_runs([tmp_path])


def test_runs_come_in_the_order_of_their_names(tmp_path: Path) -> None:
    for seed in (2, 0, 1):
        write(tmp_path, run(70.0, seed=seed))
    found = [each.record.config["seed"] for each in read_runs([tmp_path]).found]
    assert found == [0, 1, 2]


def test_a_run_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    path = write(tmp_path, run(70.0))
    assert len(read_runs([path, tmp_path, path]).found) == 1


def test_a_run_that_has_not_ended_is_named(tmp_path: Path) -> None:
    write(tmp_path, run(70.0))
    begun = tmp_path / "begun"
    RunFolder(begun).begin({"seed": 0})
    (sentence,) = read_runs([tmp_path]).skipped
    assert sentence.startswith(f"{begun} has no result.json")
    assert "--resume" in sentence


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"run_id": "a"}'])
def test_a_run_whose_result_cannot_be_read_is_named(tmp_path: Path, content: bytes) -> None:
    write(tmp_path, run(70.0))
    RunFolder(write(tmp_path, run(71.0, seed=1))).result_file.write_bytes(content)
    runs = read_runs([tmp_path])
    (sentence,) = runs.skipped
    assert len(runs.found) == 1
    assert "erm-basic-sketch-1" in sentence
    assert "\n" not in sentence


def test_a_run_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    path = write(tmp_path, run(70.0))
    write(tmp_path / ".hidden.123", run(71.0, seed=1))
    runs = read_runs([tmp_path])
    assert [each.path for each in runs.found] == [path]
    assert runs.skipped == ()


@pytest.mark.parametrize("kind", ["missing", "file"])
def test_what_is_no_folder_is_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "runs"
    if kind == "file":
        path.write_text("")
    with pytest.raises(ResultError, match="runs is no folder; name the folder of a run"):
        read_runs([path])


def test_folders_without_any_run_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match=f"there is no run in {tmp_path}"):
        read_runs([tmp_path])
