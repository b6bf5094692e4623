"""A run that was interrupted anywhere ends as if it had not been, to the bit."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.support.tiny import config, dropout_and_norm, write_images

import cicf
from cicf.core import ConfigError, DataError, TrainingError
from cicf.experiment import events
from cicf.results import RunFolder
from cicf.training import EpochEnded, Stepped

ROOT = Path(__file__).parents[2]
METHODS = {
    "erm": {"name": "erm"},
    "maml": {"name": "maml"},
    "cicf": {"name": "cicf"},
}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def outcome(folder: Path) -> tuple[bytes, bytes, bytes, dict[str, object]]:
    """Return everything that a run left but the time and the memory it took."""
    record = json.loads((folder / "result.json").read_text())
    del record["seconds"], record["peak_memory"]
    weights = b"".join(path.read_bytes() for path in sorted((folder / "weights").iterdir()))
    model = (folder / "model.safetensors").read_bytes()
    return weights, model, (folder / "metrics.jsonl").read_bytes(), record


def interrupt(run: cicf.RunConfig, folder: Path, *, after: int) -> None:
    """Stop a run once it has told of so many steps."""
    told = 0
    for event in events(run, out=folder, resumes=True):
        told += isinstance(event, Stepped)
        if told == after:
            return


@pytest.mark.slow
@pytest.mark.parametrize("method", ["erm", "maml", "cicf"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(
    images: Path, tmp_path: Path, method: str
) -> None:
    run = config(images, method=METHODS[method])
    cicf.train(run, out=tmp_path / "whole")
    for after in (1, 4, 2, 5, 3):
        torch.rand(after)
        interrupt(run, tmp_path / "parts", after=after)
    assert not RunFolder(tmp_path / "parts").is_finished
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_a_killed_run_ends_as_if_it_had_not_been(images: Path, tmp_path: Path) -> None:
    run = config(images, epochs=6)
    (tmp_path / "options.json").write_text(run.model_dump_json())
    program = (
        "import json, sys; from pathlib import Path; import cicf\n"
        "run = cicf.RunConfig.model_validate(json.loads(Path(sys.argv[1]).read_text()))\n"
        "cicf.train(run, out=Path(sys.argv[2]), resumes=True)"
    )

    def start(folder: Path) -> subprocess.Popen[bytes]:
        words = [sys.executable, "-c", program, str(tmp_path / "options.json"), str(folder)]
        return subprocess.Popen(words, cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"})

    cicf.train(run, out=tmp_path / "whole")
    parts = tmp_path / "parts"
    kills = 0
    # The last of them when training is over, but not the run.
    for rows in (3, 17, 42):
        running = start(parts)
        metrics = parts / "metrics.jsonl"
        while running.poll() is None:
            if metrics.exists() and metrics.read_bytes().count(b"\n") >= rows:
                running.send_signal(signal.SIGKILL)
                kills += running.wait() == -signal.SIGKILL
                break
            time.sleep(0.002)
    assert kills == 3
    assert not (parts / "result.json").exists()
    assert start(parts).wait() == 0
    assert outcome(parts) == outcome(tmp_path / "whole")


@pytest.mark.slow
def test_the_number_of_workers_changes_nothing(images: Path, tmp_path: Path) -> None:
    for workers in (0, 2):
        machine = {"num_workers": workers}
        run = config(images, machine=machine, data={"augment": "autoaugment"}, epochs=2)
        cicf.train(run, out=tmp_path / str(workers))
    assert outcome(tmp_path / "0") == outcome(tmp_path / "2")


def test_a_seed_decides_everything(images: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(5)
        cicf.train(config(images, seed=seed, epochs=1), out=tmp_path / name)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
    assert outcome(tmp_path / "a")[0] != outcome(tmp_path / "c")[0]


def test_a_finished_run_is_not_run_again(images: Path, tmp_path: Path) -> None:
    run = config(images, epochs=1)
    first = cicf.train(run, out=tmp_path / "run")
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}
    assert cicf.train(run, out=tmp_path / "run", resumes=True) == first
    assert written == {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}


def test_a_checkpoint_that_was_cut_off_is_not_believed(images: Path, tmp_path: Path) -> None:
    run = config(images)
    cicf.train(run, out=tmp_path / "whole")
    interrupt(run, tmp_path / "parts", after=5)
    (tmp_path / "parts" / "checkpoints" / ".step-000000099.1").mkdir()
    (tmp_path / "parts" / "checkpoints" / ".step-000000099.1" / "state.pt").write_bytes(b"half")
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_a_loss_that_is_not_finite_stops_the_run_and_keeps_the_checkpoint(
    images: Path, tmp_path: Path
) -> None:
    run = config(
        images, method={"name": "erm"}, optim={"lr": 1e30}, machine={"checkpoint_every": 1}
    )
    with pytest.raises(TrainingError, match=r"in step \d+, so training stopped before it"):
        cicf.train(run, out=tmp_path / "run")
    (kept,) = (tmp_path / "run" / "checkpoints").iterdir()
    weights = load_file(kept / "weights.safetensors")
    assert all(value.isfinite().all() for value in weights.values())
    assert not (tmp_path / "run" / "result.json").exists()


def test_no_image_of_the_target_is_read_before_training_has_ended(
    images: Path, tmp_path: Path
) -> None:
    run = config(images)
    away, epochs = tmp_path / "away", 0
    for event in events(run, out=tmp_path / "run"):
        if isinstance(event, RunFolder):
            (images / "sketch").rename(away)
        if isinstance(event, EpochEnded):
            epochs += 1
            if epochs == run.epochs:
                away.rename(images / "sketch")
    record = RunFolder(tmp_path / "run").record()
    assert record.last.test is not None
    assert record.last.test.theta["sketch"].total == 24


def test_evaluations_may_be_rarer_and_change_nothing_that_is_learnt(
    images: Path, tmp_path: Path
) -> None:
    every, third = config(images, epochs=5), config(images, epochs=5, evaluates_every=3)
    whole = cicf.train(every, out=tmp_path / "every")
    told = list(events(third, out=tmp_path / "third"))
    assert [each.epoch for each in told if isinstance(each, EpochEnded)] == [3, 5]
    rarer = RunFolder(tmp_path / "third").record()
    assert rarer.last == whole.last
    rows = [
        json.loads(line) for line in (tmp_path / "third/metrics.jsonl").read_text().splitlines()
    ]
    assert [row["epoch"] for row in rows if row["kind"] == "epoch"] == [3, 5]
    interrupt(third, tmp_path / "parts", after=9)
    cicf.train(third, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "third")


def test_runs_keep_their_names_from_before_evaluations_could_be_rarer(images: Path) -> None:
    run = config(images)
    assert "evaluates_every" not in run.identity()
    assert config(images, evaluates_every=2).run_id("") != run.run_id("")


def test_a_folder_is_used_by_one_process_at_a_time(images: Path, tmp_path: Path) -> None:
    run = config(images, epochs=1)
    first = events(run, out=tmp_path / "run")
    next(first)
    with pytest.raises(ConfigError, match="another process works in"):
        cicf.train(run, out=tmp_path / "run", resumes=True)
    first.close()
    cicf.train(run, out=tmp_path / "run", resumes=True)


def test_what_killed_writers_left_is_removed(images: Path, tmp_path: Path) -> None:
    run, folder = config(images, epochs=1), tmp_path / "run"
    interrupt(run, folder, after=3)
    (folder / "weights").mkdir(exist_ok=True)
    (folder / "weights" / ".best-theta.123.part.safetensors").write_bytes(b"half")
    (folder / ".setup.123.part.json").write_text("{")
    cicf.train(run, out=folder, resumes=True)
    assert list(folder.rglob(".*")) == []


def test_a_run_goes_on_only_where_it_was_begun(images: Path, tmp_path: Path) -> None:
    run, folder = config(images), tmp_path / "run"
    interrupt(run, folder, after=3)
    (kept,) = (folder / "checkpoints").iterdir()
    state = torch.load(kept / "state.pt", weights_only=True)
    torch.save({**state, "device": "cuda"}, kept / "state.pt")
    with pytest.raises(ConfigError, match="begun on 'cuda' and goes on exactly only there"):
        cicf.train(run, out=folder, resumes=True)


def test_weights_to_start_from_are_not_needed_again(images: Path, tmp_path: Path) -> None:
    torch.manual_seed(5)
    torch.save(dropout_and_norm(2).state_dict(), tmp_path / "start.pth")
    run = config(images, model={"weights": str(tmp_path / "start.pth")})
    cicf.train(run, out=tmp_path / "whole")
    interrupt(run, tmp_path / "parts", after=3)
    (tmp_path / "start.pth").unlink()
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_what_a_method_keeps_beside_tensors_is_resumed(images: Path, tmp_path: Path) -> None:
    method = {"name": "tests.support.tiny:CountingConfig"}
    run = config(images, method=method)
    cicf.train(run, out=tmp_path / "whole")
    interrupt(run, tmp_path / "parts", after=5)
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
    rows = list(RunFolder(tmp_path / "parts").metrics())
    assert [row["count"] for row in rows if row["kind"] == "step"] == list(range(18))


def test_another_network_than_that_of_the_checkpoint_is_refused(
    images: Path, tmp_path: Path
) -> None:
    run, folder = config(images), tmp_path / "run"
    interrupt(run, folder, after=3)
    (kept,) = (folder / "checkpoints").iterdir()
    weights = load_file(kept / "weights.safetensors")
    save_file({**weights, "model.network.5.bias": torch.zeros(9)}, kept / "weights.safetensors")
    with pytest.raises(DataError, match="does not fit the network as it is built now"):
        cicf.train(run, out=folder, resumes=True)


def test_a_run_goes_on_with_the_threads_it_was_begun_with(images: Path, tmp_path: Path) -> None:
    run, folder, threads = config(images, epochs=2), tmp_path / "run", torch.get_num_threads()
    interrupt(run, folder, after=3)
    setup = RunFolder(folder).setup()
    assert setup.threads == threads
    RunFolder(folder).write_setup(setup.model_copy(update={"threads": threads + 1}))
    try:
        for event in events(run, out=folder, resumes=True):
            if isinstance(event, Stepped):
                assert torch.get_num_threads() == threads + 1
    finally:
        torch.set_num_threads(threads)
