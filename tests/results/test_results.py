"""What a run leaves behind: its record, its rows, and sentences where something is missing."""

import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from cicf.core import DataError
from cicf.results import Evaluation, Protocol, Record, RunFolder, Score, Scored, Setup
from cicf.results.record import pooled

SETUP = Setup(
    classes=("cat", "dog"),
    sources={"art": 90, "photo": 45},
    validation={"art": 10, "photo": 5},
    protocol=Protocol(
        name="leave-one-domain-out",
        split="the given lists",
        part="all images",
        tested=("sketch",),
    ),
    fingerprint="0123456789abcdef",
    inner_size=128,
    outer_size=42,
    steps_per_epoch=3,
    cut="Z_0",
    image_size=224,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.25, 0.5),
    notes=("outer.size is 42 instead of 84, because …",),
    versions={"cicf": "0.1.0"},
)


def evaluation(theta: int, theta_dagger: int | None) -> Evaluation:
    """Return this many right images of `art`, out of 4, and one of `photo`, out of 6."""

    def scores(correct: int) -> dict[str, Score]:
        return {"art": Score(correct=correct, total=4), "photo": Score(correct=1, total=6)}

    return Evaluation(
        theta=scores(theta),
        theta_dagger=None if theta_dagger is None else scores(theta_dagger),
    )


def record(**changes: object) -> Record:
    fields: dict[str, object] = {
        "run_id": "abc",
        "config": {"method": {"name": "cicf", "alpha": 0.05}, "seed": 3, "target": None},
        "setup": SETUP,
        "deploy": "theta_dagger",
        "last": Scored(epoch=5, validation=evaluation(2, 3), test=evaluation(0, 1)),
        "best": Scored(epoch=4, validation=evaluation(3, 4), test=evaluation(1, 2)),
        "seconds": {"steps": 1.25},
    }
    return Record(**{**fields, **changes})


def test_a_record_comes_back_from_its_folder_as_it_was(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.finish(record())
    assert folder.record() == record()


def test_a_record_of_a_method_without_theta_dagger_comes_back(tmp_path: Path) -> None:
    only = Scored(epoch=1, validation=evaluation(2, None))
    written = record(deploy="theta", last=only, best=only)
    RunFolder(tmp_path).finish(written)
    assert RunFolder(tmp_path).record() == written


def test_a_setup_comes_back_as_it_was(tmp_path: Path) -> None:
    RunFolder(tmp_path).write_setup(SETUP)
    assert RunFolder(tmp_path).setup() == SETUP


def test_options_come_back_as_they_were(tmp_path: Path) -> None:
    options = {"method": {"name": "cicf", "alpha": 0.05}, "epochs": 5, "target": None}
    RunFolder(tmp_path / "run").begin(options)
    assert RunFolder(tmp_path / "run").config() == options


def test_an_infinite_option_is_written_as_json_that_everyone_reads(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    folder = RunFolder(tmp_path)
    folder.finish(record(config={"method": {"max_step_ratio": math.inf}}))
    found = json.loads(folder.result_file.read_text(), parse_constant=refuse)
    assert float(found["config"]["method"]["max_step_ratio"]) == math.inf


def test_a_folder_says_how_far_its_run_is(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    stages = [(folder.has_run, folder.is_finished)]
    folder.begin({})
    stages.append((folder.has_run, folder.is_finished))
    folder.finish(record())
    stages.append((folder.has_run, folder.is_finished))
    assert stages == [(False, False), (True, False), (True, True)]


def test_accuracy_counts_all_images_alike() -> None:
    assert record().accuracy() == pytest.approx(100 * (1 + 1) / (4 + 6))
    assert pooled(evaluation(3, None).theta) == Score(correct=4, total=10)


@pytest.mark.parametrize(
    ("deploy", "part", "at", "right"),
    [
        ("theta", "test", "last", 1),
        ("theta_dagger", "test", "last", 2),
        ("theta", "validation", "best", 4),
        ("theta_dagger", "validation", "best", 5),
    ],
)
def test_accuracy_is_of_the_part_the_epoch_and_the_network_asked_for(
    deploy: str, part: str, at: str, right: int
) -> None:
    assert record(deploy=deploy).accuracy(part, at=at) == pytest.approx(10 * right)


def test_a_run_without_a_target_has_no_test_accuracy() -> None:
    whole = Scored(epoch=1, validation=evaluation(2, 3))
    with pytest.raises(LookupError, match="run abc held no domain out"):
        record(last=whole, best=whole).accuracy()


def test_a_record_is_fixed_and_refuses_unknown_fields() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        record().run_id = "other"
    with pytest.raises(ValidationError, match="Extra inputs"):
        record(accuracy=100.0)


def test_rows_come_in_the_order_they_were_written(tmp_path: Path) -> None:
    rows = [{"kind": "step", "step": 1, "loss": 0.5}, {"kind": "epoch", "step": 3, "loss": None}]
    RunFolder(tmp_path).metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert list(RunFolder(tmp_path).metrics()) == rows


@pytest.mark.parametrize("kept", range(1, len('{"step": 2}') + 1))
def test_a_last_row_that_was_cut_off_is_left_out(tmp_path: Path, kept: int) -> None:
    text = '{"step": 1}\n' + '{"step": 2}'[:kept]
    RunFolder(tmp_path).metrics_file.write_text(text)
    assert list(RunFolder(tmp_path).metrics()) == [{"step": 1}]


def test_a_run_that_logged_nothing_has_no_rows(tmp_path: Path) -> None:
    assert list(RunFolder(tmp_path).metrics()) == []


READERS: dict[str, Callable[[RunFolder], object]] = {
    "config.json": RunFolder.config,
    "setup.json": RunFolder.setup,
    "result.json": RunFolder.record,
}


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("config.json", "is no folder of a run; it has no config.json"),
        ("setup.json", "has not begun to train"),
        ("result.json", "has no result.json, so the run has not ended"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(tmp_path: Path, name: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence) as caught:
        READERS[name](RunFolder(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b'{"run', b"\xff\xfe", b""])
@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_named_in_one_sentence(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=name) as caught:
        READERS[name](RunFolder(tmp_path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["setup.json", "result.json"])
def test_a_file_of_another_version_is_named_in_one_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"run_id": "abc", "unheard_of": 1}))
    with pytest.raises(DataError, match=rf"{name} is no \w+ that this version reads") as caught:
        READERS[name](RunFolder(tmp_path))
    assert "\n" not in str(caught.value)


def test_results_are_read_without_torch(tmp_path: Path) -> None:
    RunFolder(tmp_path).finish(record())
    script = (
        "import sys; from pathlib import Path; from cicf.results import RunFolder;"
        f"print(RunFolder(Path({str(tmp_path)!r})).record().accuracy(),"
        "sorted({'torch', 'numpy', 'torchvision', 'sklearn'} & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "20.0 []"
