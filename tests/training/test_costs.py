"""What a run took: seconds by phase and memory, over all its parts."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.support.tiny import config, write_images

import cicf
from cicf.experiment import events
from cicf.results import Record, RunFolder
from cicf.training import Stepped, costs
from cicf.training.costs import PHASES, PeakMemory

MIB = 1 << 20
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def interrupt(run: cicf.RunConfig, folder: Path, *, step: int) -> None:
    for event in events(run, out=folder, resumes=True):
        if isinstance(event, Stepped) and event.step == step:
            return


def test_a_run_says_what_it_spent_on_each_phase(images: Path, tmp_path: Path) -> None:
    record = cicf.train(config(images, epochs=1), out=tmp_path)
    assert set(PHASES) <= set(record.seconds)
    assert all(record.seconds[phase] > 0 for phase in PHASES)
    assert RunFolder(tmp_path).record() == record


def test_what_a_method_says_of_its_steps_is_added_over_all_parts(
    images: Path, tmp_path: Path
) -> None:
    run = config(images, method={"name": "tests.support.tiny:TimedConfig"})
    whole = cicf.train(run, out=tmp_path / "whole")
    assert whole.seconds["pass 1"] == 18 * 0.25
    for step in (3, 9, 16):
        interrupt(run, tmp_path / "parts", step=step)
    parts = cicf.train(run, out=tmp_path / "parts", resumes=True)
    # What lay behind a checkpoint was done again, and counts once.
    assert parts.seconds["pass 1"] == 18 * 0.25


def test_time_before_an_interruption_counts(images: Path, tmp_path: Path) -> None:
    run = config(images)
    interrupt(run, tmp_path, step=5)
    (kept,) = (tmp_path / "checkpoints").iterdir()
    state = torch.load(kept / "state.pt", weights_only=True)
    state["seconds"]["clustering"] += 1000.0
    torch.save({**state, "peak_memory": 1 << 50}, kept / "state.pt")
    record = cicf.train(run, out=tmp_path, resumes=True)
    assert 1000 < record.seconds["clustering"] < 1100
    assert record.peak_memory == 1 << 50


def test_a_checkpoint_from_before_memory_was_measured_is_gone_on_from(
    images: Path, tmp_path: Path
) -> None:
    run = config(images)
    interrupt(run, tmp_path, step=5)
    (kept,) = (tmp_path / "checkpoints").iterdir()
    state = torch.load(kept / "state.pt", weights_only=True)
    del state["peak_memory"]
    torch.save({**state, "seconds": {"steps": 1000.0}}, kept / "state.pt")
    assert cicf.train(run, out=tmp_path, resumes=True).seconds["steps"] > 1000


def test_a_record_from_before_memory_was_measured_is_read(images: Path, tmp_path: Path) -> None:
    record = cicf.train(config(images, epochs=1), out=tmp_path)
    assert record.peak_memory is None or record.peak_memory >= 0
    values = json.loads(record.model_dump_json())
    del values["peak_memory"]
    assert Record.model_validate(values).peak_memory is None


def test_metrics_have_no_times(images: Path, tmp_path: Path) -> None:
    cicf.train(config(images, epochs=1), out=tmp_path)
    names = {name for row in RunFolder(tmp_path).metrics() for name in row}
    assert not names & {*PHASES, "seconds", "peak_memory"}


def test_peak_is_what_was_held_at_once_above_the_start() -> None:
    # In a process of its own: one that has freed much before holds it without taking more.
    program = (
        "import torch\n"
        "from cicf.training.costs import PeakMemory\n"
        f"before = torch.ones({64 * MIB}, dtype=torch.uint8)\n"
        "peak = PeakMemory(torch.device('cpu'))\n"
        "for _ in range(2):\n"
        f"    held = torch.ones({96 * MIB}, dtype=torch.uint8)\n"
        "    del held\n"
        "print(peak.bytes)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert 80 * MIB < int(found.stdout) < 144 * MIB


def test_peak_from_before_is_not_taken_for_one_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(costs, "_PROCESS", tmp_path / "nowhere")
    peak = PeakMemory(CPU)
    assert peak.bytes is None
    monkeypatch.setattr(costs, "_highest_resident", lambda: 1 << 50)
    assert peak.bytes is not None
    assert peak.bytes > 1 << 49
