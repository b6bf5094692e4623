"""Memory that runs out ends a run with a sentence about what takes less of it."""

from pathlib import Path

import pytest
import torch
from tests.support.runs import run_cli
from tests.support.tiny import config, write_images

import cicf
from cicf.core import TrainingError
from cicf.intervention.objective import Objective
from cicf.methods.erm import Erm
from cicf.training.checks import check_terms

CPU_ERROR = RuntimeError(
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"
)
SMALL = (
    *("--set", "model.name=tests.support.tiny:dropout_and_norm", "--set", "model.weights=none"),
    *("--set", "data.image_size=8", "--set", "inner.size=12", "--set", "outer.size=6"),
    *("--set", "method.batch_norm=batch", "--target", "sketch", "--epochs", "1"),
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def scarce(monkeypatch: pytest.MonkeyPatch, *, after: int, error: Exception) -> None:
    """Let memory run out for every loss of a batch, after so many."""
    forward, calls = Objective.forward, 0

    def failing(self: Objective, batch: object, then: object) -> object:
        nonlocal calls
        calls += 1
        if calls > after:
            raise error
        return forward(self, batch, then)

    monkeypatch.setattr(Objective, "forward", failing)


@pytest.mark.parametrize("error", [CPU_ERROR, torch.OutOfMemoryError("CUDA out of memory")])
def test_a_step_that_cannot_be_cut_ends_in_a_sentence(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    scarce(monkeypatch, after=0, error=error)
    with pytest.raises(TrainingError) as raised:
        cicf.train(config(images), out=tmp_path / "run")
    assert str(raised.value) == (
        "memory ran out in step 1, with batches of 12 and 6 images of 8 pixels, so training "
        f"stopped (nothing was kept in {tmp_path / 'run'}); make inner.size, outer.size or "
        "data.image_size smaller, or set method.batch_norm=frozen, with which a step goes in "
        "pieces that fit"
    )


def test_what_was_trained_before_is_kept_and_gone_on_from(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config(images, method={"name": "erm"})
    backward, steps = Erm.backward, 0

    def failing(self: Erm, draw: object) -> object:
        nonlocal steps
        steps += 1
        if steps == 6:
            raise MemoryError
        return backward(self, draw)

    with monkeypatch.context() as patched:
        patched.setattr(Erm, "backward", failing)
        with pytest.raises(TrainingError, match="in step 6") as raised:
            cicf.train(run, out=tmp_path / "run")
    assert "the checkpoint after step 4 is kept in" in str(raised.value)
    assert str(raised.value).endswith("make outer.size or data.image_size smaller")
    assert cicf.train(run, out=tmp_path / "run", resumes=True).last.epoch == 3


def test_an_evaluation_without_memory_is_told_as_well(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object, **__: object) -> object:
        raise CPU_ERROR

    monkeypatch.setattr("cicf.training.evaluate.batches", none)
    with pytest.raises(TrainingError, match="memory ran out in the evaluation after step 6"):
        cicf.train(config(images, method={"name": "erm"}), out=tmp_path)


def test_other_errors_stay_what_they_are(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scarce(monkeypatch, after=0, error=RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        cicf.train(config(images), out=tmp_path)


def test_the_command_ends_with_one_sentence(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scarce(monkeypatch, after=0, error=CPU_ERROR)
    ended = run_cli("train", images, "--out", tmp_path / "run", *SMALL)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("cicf: memory ran out in step 1")
    assert "Traceback" not in ended.err
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("name", ["loss", "gradient_norm", "gradient_norm_alignment"])
def test_a_gradient_that_is_not_finite_is_refused_in_whichever_turn(name: str) -> None:
    check_terms({"loss": 1.0, "other": float("nan")}, step=1, kept=lambda: "")
    with pytest.raises(TrainingError, match=name.replace("_", " ")):
        check_terms({"loss": 1.0, name: float("inf")}, step=1, kept=lambda: "nothing was kept")
