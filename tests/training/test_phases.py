"""A run of several phases: what begins anew with each, what is evaluated, and how it goes on."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.phased import FIRST
from tests.support.tiny import config, dropout_and_norm, write_images
from tests.training.test_resume import interrupt, outcome

import cicf
from cicf.experiment import events
from cicf.results import RunFolder
from cicf.training import EpochEnded, Started

STEPS = 6
"""Steps of an epoch."""
LR = 0.05
GOING_ON, FRESH = "tests.support.phased:GoingOnConfig", "tests.support.phased:FreshConfig"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def run_of(images: Path, name: str = FRESH, **over: Any) -> cicf.RunConfig:
    optim = {"lr": LR, "momentum": 0.5, "weight_decay": 0.0, "clip": math.inf}
    return config(images, method={"name": name}, optim=optim, **over)


def rows_of(folder: Path, kind: str = "step") -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind]


def test_the_phases_come_one_after_the_other(images: Path, tmp_path: Path) -> None:
    told = list(events(run_of(images), out=tmp_path / "run"))
    (started,) = [each for each in told if isinstance(each, Started)]
    assert started.total_steps == (FIRST + 3) * STEPS
    rows = rows_of(tmp_path / "run")
    assert [row["step"] for row in rows] == list(range(1, 31))
    assert ["gradient_norm_own" in row for row in rows] == [True] * 12 + [False] * 18
    assert ["gradient_norm" in row for row in rows] == [False] * 12 + [True] * 18


def test_a_fresh_phase_starts_from_the_first_weights_to_the_bit(
    images: Path, tmp_path: Path
) -> None:
    cicf.train(run_of(images), out=tmp_path / "fresh")
    cicf.train(run_of(images, GOING_ON), out=tmp_path / "on")
    fresh, on = ([row["network"] for row in rows_of(tmp_path / each)] for each in ("fresh", "on"))
    assert fresh[:12] == on[:12]
    assert fresh[12] == fresh[0]
    assert on[12] not in (on[0], on[11])
    assert len(set(fresh)) == 29


def test_what_a_method_owns_goes_on_in_a_fresh_phase(images: Path, tmp_path: Path) -> None:
    cicf.train(run_of(images), out=tmp_path / "run")
    own = [row["w"] for row in rows_of(tmp_path / "run")]
    assert all(after < before for before, after in pairwise(own))


@pytest.mark.parametrize("name", [FRESH, GOING_ON])
def test_a_phase_has_a_schedule_of_its_own(images: Path, tmp_path: Path, name: str) -> None:
    cicf.train(run_of(images, name), out=tmp_path / "run")
    rates = [row["lr"] for row in rows_of(tmp_path / "run")][::STEPS]
    turns = [0, 1 / 2, 0, 1 / 3, 2 / 3]
    assert rates == pytest.approx([LR * (1 + math.cos(math.pi * turn)) / 2 for turn in turns])


@pytest.mark.parametrize("name", [FRESH, GOING_ON])
def test_a_phase_begins_without_momentum(images: Path, tmp_path: Path, name: str) -> None:
    cicf.train(run_of(images, name), out=tmp_path / "run")
    own = [row["w"] for row in rows_of(tmp_path / "run")]
    moved = [before - after for before, after in pairwise(own)]
    # The gradient of w is 1, so the momentum's sum goes 1, 1.5, 1.75, … from each start.
    assert moved[:3] == pytest.approx([LR, 1.5 * LR, 1.75 * LR], rel=1e-4)
    assert moved[12:15] == pytest.approx([LR, 1.5 * LR, 1.75 * LR], rel=1e-4)
    assert moved[11] == pytest.approx(2 * LR / 2, rel=1e-2)


@pytest.mark.parametrize(("every", "evaluated"), [(1, [3, 4, 5]), (2, [4, 5]), (9, [5])])
def test_only_the_last_phase_is_evaluated(
    images: Path, tmp_path: Path, every: int, evaluated: list[int]
) -> None:
    run = run_of(images, evaluates_every=every, keeps_epochs=True)
    told = list(events(run, out=tmp_path / "run"))
    assert [each.epoch for each in told if isinstance(each, EpochEnded)] == evaluated
    record = RunFolder(tmp_path / "run").record()
    assert [each.epoch for each in record.epochs] == evaluated
    assert record.last.epoch == 5


def test_the_best_epoch_is_one_of_the_last_phase(images: Path, tmp_path: Path) -> None:
    record = cicf.train(run_of(images), out=tmp_path / "run")
    rows = rows_of(tmp_path / "run", "epoch")
    scores = {row["epoch"]: row["validation"]["theta"]["all"] for row in rows}
    assert set(scores) == {3, 4, 5}
    assert record.best.epoch == max(scores, key=lambda epoch: (scores[epoch], -epoch))
    best = json.loads((tmp_path / "run/result.json").read_text())["best"]
    assert best["epoch"] == record.best.epoch


@pytest.mark.slow
@pytest.mark.parametrize("name", [FRESH, GOING_ON])
def test_a_run_that_was_cut_off_in_any_phase_ends_as_if_it_had_not_been(
    images: Path, tmp_path: Path, name: str
) -> None:
    run = run_of(images, name)
    cicf.train(run, out=tmp_path / "whole")
    for number, at in enumerate((11, 12, 13, 15, 19)):
        # Checkpoints come every other step, so that 13 goes on exactly where the phase begins.
        folder = tmp_path / f"parts{number}"
        interrupt(run, folder, after=at)
        (kept,) = (folder / "checkpoints").iterdir()
        assert kept.name == f"step-{(at - 1) // 2 * 2:09d}"
        cicf.train(run, out=folder, resumes=True)
        assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_run_that_was_cut_off_in_each_phase_ends_as_if_it_had_not_been(
    images: Path, tmp_path: Path
) -> None:
    run = run_of(images)
    cicf.train(run, out=tmp_path / "whole")
    for after in (3, 5, 6, 3, 5, 4):
        interrupt(run, tmp_path / "parts", after=after)
    assert not RunFolder(tmp_path / "parts").is_finished
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_a_fresh_phase_finds_weights_of_a_file_again_after_an_interruption(
    images: Path, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    torch.save(dropout_and_norm(2).state_dict(), tmp_path / "start.pth")
    run = run_of(images, model={"weights": str(tmp_path / "start.pth")})
    cicf.train(run, out=tmp_path / "whole")
    interrupt(run, tmp_path / "parts", after=5)
    (tmp_path / "start.pth").unlink()
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    seen = [row["network"] for row in rows_of(tmp_path / "parts")]
    assert seen[12] == seen[0]
