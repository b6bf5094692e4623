"""How a run's steps go through their batches: told, written down, kept to after a resumption."""

from pathlib import Path

import pytest
from tests.support.tiny import config, write_images

import cicf
from cicf.core.pace import Pace
from cicf.experiment import events
from cicf.intervention import pace as pacing
from cicf.intervention.objective import Objective
from cicf.results import RunFolder
from cicf.training import Paced, Stepped


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def free(images: Path, epochs: int = 1) -> cicf.RunConfig:
    method = {"chunk": "auto", "batch_norm": "frozen"}
    return config(images, epochs=epochs, method=method)


def test_what_was_picked_is_told_and_written_down(images: Path, tmp_path: Path) -> None:
    told = [event for event in events(free(images), out=tmp_path) if isinstance(event, Paced)]
    assert told == [Paced(Pace(None, keeps_graphs=True))]
    assert RunFolder(tmp_path).record().setup.pace == told[0].pace


def test_a_resumed_run_keeps_to_what_was_picked(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pacing, "fitting", lambda *_, **__: Pace(5, keeps_graphs=False))
    whole = cicf.train(free(images, epochs=2), out=tmp_path / "whole")
    for event in events(free(images, epochs=2), out=tmp_path / "cut"):
        if isinstance(event, Stepped) and event.step == 4:
            break
    # Memory may look otherwise now.
    monkeypatch.setattr(pacing, "fitting", lambda *_, **__: Pace(None, keeps_graphs=True))
    resumed = cicf.train(free(images, epochs=2), out=tmp_path / "cut", resumes=True)
    assert resumed.setup.pace == whole.setup.pace == Pace(5, keeps_graphs=False)
    assert resumed.last == whole.last
    weights = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("whole", "cut")]
    assert weights[0] == weights[1]


def test_a_run_whose_memory_ran_out_goes_on_and_says_so(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = Objective.forward
    failed: list[int] = []

    def scarce(self: Objective, batch: object, then: object) -> object:
        size = 0 if batch is None else len(batch.y)
        if size == 12:
            failed.append(size)
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory")
        return forward(self, batch, then)

    monkeypatch.setattr(Objective, "forward", scarce)
    told = [event for event in events(free(images), out=tmp_path) if isinstance(event, Paced)]
    assert [event.pace for event in told] == [Pace(6, keeps_graphs=False, retries=1)]
    assert len(failed) == 1
    setup = RunFolder(tmp_path).record().setup
    assert setup.pace == told[0].pace
    assert any("memory ran out in step 1" in note for note in setup.notes)


def test_methods_without_a_virtual_step_have_no_pace(images: Path, tmp_path: Path) -> None:
    erm = config(images, epochs=1, method={"name": "erm"})
    assert not [event for event in events(erm, out=tmp_path) if isinstance(event, Paced)]
    assert RunFolder(tmp_path).record().setup.pace is None
