"""What a run leaves behind: scores, checkpoints, metrics, and the model that is deployed."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from tests.support.tiny import config, write_images

import cicf
from cicf.core.draw import Draw
from cicf.data.loader import Draws
from cicf.results import RunFolder
from cicf.results.record import pooled


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def test_metrics_show_both_parameters_and_what_the_step_did(images: Path, tmp_path: Path) -> None:
    cicf.train(config(images, epochs=2), out=tmp_path)
    rows = list(RunFolder(tmp_path).metrics())
    steps = [row for row in rows if row["kind"] == "step"]
    epochs = [row for row in rows if row["kind"] == "epoch"]
    assert [row["step"] for row in steps] == list(range(1, 13))
    shown = {"loss", "loss_at_theta", "inner_loss", "step_ratio", "alpha", "lr", "gradient_norm"}
    assert all(shown <= set(row) for row in steps)
    assert len(epochs) == 2
    for row in epochs:
        assert set(row["validation"]) == {"theta", "theta_dagger"}
        assert set(row["validation"]["theta"]["domains"]) == {"art", "photo"}


def test_what_is_written_down_does_not_depend_on_how_often(images: Path, tmp_path: Path) -> None:
    for every in (1, 4):
        cicf.train(config(images, log_every=every, epochs=2), out=tmp_path / str(every))
    often, seldom = (
        {row["step"]: row for row in RunFolder(tmp_path / str(every)).metrics() if "loss" in row}
        for every in (1, 4)
    )
    assert sorted(seldom) == [4, 6, 8, 12]
    assert all(seldom[step] == often[step] for step in seldom)


def test_a_method_is_told_whether_its_terms_are_written_down(images: Path, tmp_path: Path) -> None:
    method = {"name": "tests.support.tiny:CountingConfig"}
    cicf.train(config(images, method=method, log_every=4, epochs=2), out=tmp_path)
    rows = [row for row in RunFolder(tmp_path).metrics() if row["kind"] == "step"]
    assert [(row["step"], row["told"]) for row in rows] == [(4, 1), (6, 2), (8, 3), (12, 4)]


def test_the_record_holds_the_last_and_the_best_epoch(images: Path, tmp_path: Path) -> None:
    record = cicf.train(config(images, epochs=5), out=tmp_path)
    rows = [row for row in RunFolder(tmp_path).metrics() if row["kind"] == "epoch"]
    validation = [row["validation"]["theta_dagger"]["all"] for row in rows]
    assert record.last.epoch == 5
    assert record.best.epoch == validation.index(max(validation)) + 1
    assert record.accuracy("validation", at="best") == max(validation)
    assert record.accuracy("validation") == validation[-1]
    for scored in (record.last, record.best):
        assert scored.test is not None
        assert scored.test.theta_dagger is not None
        assert pooled(scored.test.theta).total == 24
    assert RunFolder(tmp_path).record() == record
    assert not (tmp_path / "checkpoints").exists()


@pytest.mark.parametrize("deploy", ["theta", "theta_dagger"])
def test_deploy_chooses_the_stored_model(images: Path, tmp_path: Path, deploy: str) -> None:
    record = cicf.train(config(images, epochs=1, method={"deploy": deploy}), out=tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    theta, dagger = (
        load_file(tmp_path / "weights" / f"last-{name}.safetensors")
        for name in ("theta", "theta_dagger")
    )
    chosen = theta if deploy == "theta" else dagger
    assert all(torch.equal(stored[name], chosen[name]) for name in chosen)
    assert not torch.equal(theta["5.weight"], dagger["5.weight"])
    assert torch.equal(theta["0.weight"], dagger["0.weight"])
    assert record.deploy == deploy
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        assert '"classes": ["left", "right"]' in file.metadata()["cicf"]


def test_the_loaded_model_scores_what_the_record_says(images: Path, tmp_path: Path) -> None:
    from cicf.data.folder import load_folder

    record = cicf.train(config(images, epochs=2), out=tmp_path)
    target = load_folder(images).of("sketch")
    assert record.last.test is not None
    assert record.best.test is not None
    for at in ("last", "best"):
        scored = record.last if at == "last" else record.best
        assert cicf.open_run(tmp_path, at=at).scores(target) == scored.test.theta_dagger


def test_without_a_target_there_is_no_test(images: Path, tmp_path: Path) -> None:
    record = cicf.train(config(images, epochs=1, data={"target": None}), out=tmp_path)
    assert record.last.test is None
    assert set(record.setup.sources) == {"art", "photo", "sketch"}
    with pytest.raises(LookupError, match="held no domain out"):
        record.accuracy()


def test_training_can_be_watched_in_tensorboard(images: Path, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    cicf.train(config(images, epochs=1, machine={"tensorboard": True}), out=tmp_path)
    found = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    losses = [event.value for event in found.Scalars("loss")]
    rows = [row for row in RunFolder(tmp_path).metrics() if row["kind"] == "step"]
    assert losses == pytest.approx([row["loss"] for row in rows])
    assert "validation/theta_dagger/all" in found.Tags()["scalars"]


def test_the_schedule_moves_the_learning_rate_after_each_epoch(
    images: Path, tmp_path: Path
) -> None:
    cicf.train(config(images, epochs=4, method={"name": "erm"}), out=tmp_path)
    rows = [row for row in RunFolder(tmp_path).metrics() if row["kind"] == "step"]
    rates = [row["lr"] for row in rows[::6]]
    turns = torch.cos(torch.arange(4) / 4 * torch.pi)
    assert rates == pytest.approx((0.05 * (1 + turns) / 2).tolist())


@pytest.mark.parametrize(("method", "times"), [("erm", 1), ("cicf", 3)])
def test_whoever_makes_draws_goes_on_until_the_clusters_change(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, times: int
) -> None:
    starts, threads = [], threading.active_count()
    original = cicf.training.trainer.iterate

    def started(draws: Draws, *, start: int, stop: int, **options: object) -> Iterator[Draw]:
        starts.append(start)
        return original(draws, start=start, stop=stop, **options)

    monkeypatch.setattr("cicf.training.trainer.iterate", started)
    cicf.train(config(images, method={"name": method}, epochs=3), out=tmp_path)
    assert starts == [0, 6, 12][:times]
    assert threading.active_count() == threads
