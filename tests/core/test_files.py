"""Files that are there whole or not at all."""

from pathlib import Path

import pytest

from cicf.core.files import new_folder, replacing, write_text

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
