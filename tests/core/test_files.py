"""Files that are there whole or not at all."""

import os
import subprocess
import threading
from pathlib import Path

import pytest

from cicf.core.errors import BusyError
from cicf.core.files import (
    is_locked,
    locked,
    new_folder,
    remove_abandoned,
    remove_leftovers,
    replacing,
    write_text,
)

FAILURES = [RuntimeError, KeyboardInterrupt]


def fail_while_writing(path: Path, failure: type[BaseException]) -> None:
    with replacing(path) as temporary:
        temporary.write_text("half of the n")
        raise failure


def fail_while_filling(path: Path, failure: type[BaseException]) -> None:
    with new_folder(path) as temporary:
        (temporary / "a").write_text("one")
        raise failure


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_text_is_written_whole(tmp_path: Path) -> None:
    text = "α\n" * 100_000
    write_text(tmp_path / "a.json", text)
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == text


def test_a_written_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "old and longer")
    write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new"
    assert names(tmp_path) == ["a.json"]


def test_folders_on_the_way_are_made(tmp_path: Path) -> None:
    write_text(tmp_path / "run" / "weights" / "a.json", "new")
    assert (tmp_path / "run" / "weights" / "a.json").read_text() == "new"


def test_the_old_file_is_there_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"


def test_the_temporary_name_has_the_ending_of_the_file(tmp_path: Path) -> None:
    with replacing(tmp_path / "a.safetensors") as temporary:
        temporary.write_bytes(b"")
        assert temporary.parent == tmp_path
        assert temporary.suffix == ".safetensors"


@pytest.mark.parametrize("failure", FAILURES)
def test_the_old_file_stays_when_the_writer_fails(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(failure):
        fail_while_writing(path, failure)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_a_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.json", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.json", "n" * 100_000 + "\ud800")
    assert (tmp_path / "a.json").read_text() == "old"
    assert names(tmp_path) == ["a.json"]


def test_a_writer_that_writes_nothing_fails_and_the_old_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), replacing(path):
        pass
    assert path.read_text() == "old"


def test_a_new_folder_appears_with_all_that_is_in_it(tmp_path: Path) -> None:
    path = tmp_path / "checkpoints" / "step-1"
    with new_folder(path) as temporary:
        (temporary / "a").write_text("one")
        (temporary / "deeper").mkdir()
        (temporary / "deeper" / "b").write_text("two")
        assert not path.exists()
    assert (path / "a").read_text() == "one"
    assert (path / "deeper" / "b").read_text() == "two"
    assert names(path.parent) == ["step-1"]


@pytest.mark.parametrize("failure", FAILURES)
def test_no_folder_is_left_when_its_writer_fails(
    tmp_path: Path, failure: type[BaseException]
) -> None:
    with pytest.raises(failure):
        fail_while_filling(tmp_path / "step-1", failure)
    assert names(tmp_path) == []


def test_a_folder_that_exists_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "step-1"
    path.mkdir()
    (path / "a").write_text("old")
    with pytest.raises(OSError, match="not empty"), new_folder(path) as temporary:
        (temporary / "a").write_text("new")
    assert (path / "a").read_text() == "old"
    assert names(tmp_path) == ["step-1"]


def test_what_a_killed_process_left_is_no_part_of_a_new_folder(tmp_path: Path) -> None:
    path = tmp_path / "step-1"
    with new_folder(path) as temporary:
        abandoned = temporary
    abandoned.mkdir()
    (abandoned / "stale").write_text("half")
    path.rename(tmp_path / "step-0")
    with new_folder(path) as temporary:
        (temporary / "a").write_text("one")
    assert names(path) == ["a"]


def test_lock_of_a_folder_that_was_removed_meanwhile_is_not_taken_from_its_next_owner(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    with locked(folder):
        (folder / ".lock").unlink()
        second = locked(folder)
        second.__enter__()
    assert is_locked(folder)
    with pytest.raises(BusyError), locked(folder):
        pass
    second.__exit__(None, None, None)
    assert not is_locked(folder)


def test_looking_for_a_lock_does_not_keep_others_from_taking_it(tmp_path: Path) -> None:
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            is_locked(tmp_path)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        taken = 0
        for _ in range(200):
            with locked(tmp_path):
                taken += (tmp_path / ".lock").exists()
                (tmp_path / "kept").touch()
    finally:
        stop.set()
        watcher.join()
    assert taken == 200


def test_folder_in_which_nothing_came_to_be_is_gone_after_its_lock(tmp_path: Path) -> None:
    with locked(tmp_path / "run"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_only_leftovers_of_our_own_are_removed(tmp_path: Path) -> None:
    own, foreign = [".a.12.part.json", ".b.7.part"], [".config.123.json", ".x.1", ".lock"]
    for name in (*own, *foreign):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(foreign)


def test_what_a_process_that_is_gone_left_beside_a_place_is_removed(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    dead, alive = f".pacs-unpacked.{gone.pid}.part", f".pacs.{os.getpid()}.part"
    for name in (dead, alive, f".vlcs.{gone.pid}.part"):
        (tmp_path / name).mkdir()
    remove_abandoned(tmp_path / "pacs")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [alive, f".vlcs.{gone.pid}.part"]
    )
