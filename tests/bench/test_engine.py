"""Many runs in processes of their own: done once, kept apart, stopped and gone on with."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.support.bench import TRACE
from tests.support.tiny import config, write_images

from cicf.bench import Ended, Job, Moved, Waiting, estimate, execute
from cicf.bench.engine import _parsed
from cicf.core.files import is_locked, locked
from cicf.experiment.data import load_data
from cicf.results import RunFolder

ROOT = Path(__file__).parents[2]


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


@pytest.fixture(autouse=True)
def trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let other processes find the tests, and leave their traces in a file."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(TRACE, str(tmp_path / "trace"))
    return tmp_path / "trace"


def job(images: Path, out: Path, method: str = "TracedConfig", **over: Any) -> Job:
    name = f"tests.support.bench:{method}"
    run = config(images, **{"epochs": 2, "method": {"name": name}, **over})
    return Job(run, RunFolder(out / f"{method}-{run.seed}"))


def steps(run: Job) -> int:
    setup = run.folder.setup()
    return run.config.epochs * setup.steps_per_epoch


@pytest.mark.slow
def test_jobs_are_done_and_told_of(images: Path, tmp_path: Path) -> None:
    runs = [job(images, tmp_path / "out", seed=seed) for seed in (0, 1)]
    told = list(execute(runs, num_jobs=2, logs=tmp_path / "logs"))
    assert {(each.job, each.problem) for each in told if isinstance(each, Ended)} == {
        (run, None) for run in runs
    }
    for run in runs:
        moved = [each for each in told if isinstance(each, Moved) and each.job == run]
        assert (moved[0].step, moved[-1].step) == (0, steps(run))
        assert {each.total for each in moved} == {steps(run)}
        assert run.folder.record().run_id == run.config.run_id(run.folder.setup().fingerprint)
    assert list((tmp_path / "logs").iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(("cores", "asked"), [(1, "2"), (1, ""), (2, "1")])
def test_run_has_its_share_of_the_cores_or_the_fewer_that_are_asked_for(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, asked: str
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: cores)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    run = job(images, tmp_path / "out", seed=0)
    list(execute([run], num_jobs=1, logs=tmp_path / "logs"))
    assert run.folder.setup().threads == 1


@pytest.mark.slow
def test_job_that_fails_does_not_stop_the_others_and_goes_on_another_time(
    images: Path, tmp_path: Path, trace: Path
) -> None:
    trace.touch()
    runs = [
        job(images, tmp_path / "out", "CrashingConfig"),
        job(images, tmp_path / "out"),
        job(images, tmp_path / "out", seed=1, data={"target": "sketsch"}),
    ]
    told = {each.job: each for each in execute(runs, num_jobs=2, logs=tmp_path / "logs")}
    assert told[runs[0]].problem == "RuntimeError: the machine is on fire"
    assert "Traceback" in told[runs[0]].log.read_text()
    assert told[runs[1]].problem is None
    assert told[runs[2]].problem.startswith("data.target='sketsch' is no domain of")
    trace.unlink()
    again = list(execute(runs[:2], num_jobs=1, logs=tmp_path / "logs"))
    assert {each.job for each in again} == {runs[0]}
    assert runs[0].folder.is_finished


def test_jobs_that_have_ended_are_not_run_again(images: Path, tmp_path: Path, trace: Path) -> None:
    run = job(images, tmp_path / "out")
    run.folder.path.mkdir(parents=True)
    run.folder.result_file.write_text("{}")
    assert list(execute([run], num_jobs=2, logs=tmp_path / "logs")) == []
    assert not trace.exists()


@pytest.mark.slow
def test_two_engines_on_one_folder_do_every_run_once(
    images: Path, tmp_path: Path, trace: Path
) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.bench.test_engine import job
from cicf.bench import execute
runs = [job(Path({str(images)!r}), Path({str(tmp_path / "out")!r}), seed=s) for s in range(2)]
for each in execute(runs, num_jobs=1, logs=Path({str(tmp_path / "logs")!r})):
    print(type(each).__name__, getattr(each, "problem", ""), flush=True)
"""
    both = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    runs = [job(images, tmp_path / "out", seed=seed) for seed in range(2)]
    assert all(run.folder.is_finished for run in runs)
    assert len(trace.read_text().split()) == sum(map(steps, runs))
    assert "Ended None" in said[0]
    assert "Ended None" in said[1]


@pytest.mark.slow
def test_run_that_another_process_works_on_is_waited_for(images: Path, tmp_path: Path) -> None:
    run = job(images, tmp_path / "out")
    with locked(run.folder.path):
        assert is_locked(run.folder.path)
        events = execute([run], num_jobs=1, logs=tmp_path / "logs")
        assert next(events) == Waiting((run,))
        run.folder.result_file.write_text("{}")
        ended = [each for each in events if isinstance(each, Ended)]
    assert [(each.job, each.problem) for each in ended] == [(run, None)]
    assert not is_locked(run.folder.path)


@pytest.mark.slow
def test_stopped_engine_stops_its_runs_and_the_next_one_goes_on(
    images: Path, tmp_path: Path, trace: Path
) -> None:
    run = job(images, tmp_path / "out", epochs=3)
    events = execute([run], num_jobs=1, logs=tmp_path / "logs")
    for event in events:
        if isinstance(event, Moved) and event.step >= 5:
            break
    events.close()
    before = len(trace.read_text().split())
    assert not run.folder.is_finished
    assert not is_locked(run.folder.path)
    time.sleep(0.2)
    assert len(trace.read_text().split()) == before
    first = next(e for e in execute([run], num_jobs=1, logs=tmp_path / "logs"))
    assert isinstance(first, Moved)
    assert first.step > 0


@pytest.mark.slow
def test_runs_of_an_engine_that_was_killed_end_with_it(
    images: Path, tmp_path: Path, trace: Path
) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from tests.bench.test_engine import job
from cicf.bench import execute
run = job(Path({str(images)!r}), Path({str(tmp_path / "out")!r}), epochs=100000)
list(execute([run], num_jobs=1, logs=Path({str(tmp_path / "logs")!r})))
"""
    engine = subprocess.Popen([sys.executable, "-c", script])
    folder = tmp_path / "out" / "TracedConfig-0"
    deadline = time.monotonic() + 60
    while not trace.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    while is_locked(folder) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert trace.exists()
    assert not is_locked(folder)


def test_estimate_takes_real_steps_of_every_kind(images: Path, tmp_path: Path) -> None:
    runs = [job(images, tmp_path / "out", "CrashingConfig", seed=seed, epochs=3) for seed in (0, 1)]
    runs.append(job(images, tmp_path / "out", "TracedConfig", epochs=3, keeps_epochs=True))
    found = estimate(runs, load_data(runs[0].config.data))
    assert list(found) == [runs[0].kind, runs[2].kind]
    plain, kept = found.values()
    # Two domains of two classes with twelve images each, a quarter held out, six a step.
    assert plain.steps == kept.steps == 3 * (2 * 2 * 9 // 6)
    assert 0 < plain.seconds_per_step < 60
    assert plain.seconds == plain.steps * plain.seconds_per_step
    # θ after the last and the best epoch and the model; and after each of three epochs.
    assert kept.bytes == 2 * plain.bytes


def test_estimate_says_what_cannot_be_run(images: Path, tmp_path: Path) -> None:
    run = job(images, tmp_path / "out", data={"target": "moon"})
    (found,) = estimate([run], load_data(run.config.data)).values()
    assert found.problem is not None
    assert "'moon' is no domain" in found.problem


def test_estimate_goes_on_to_a_domain_that_can_be_trained_on(images: Path, tmp_path: Path) -> None:
    runs = [job(images, tmp_path / "out", data={"target": name}) for name in ("moon", "art")]
    (found,) = estimate(runs, load_data(runs[0].config.data)).values()
    assert found.problem is None


def test_estimate_leaves_the_random_state_alone(images: Path, tmp_path: Path) -> None:
    run = job(images, tmp_path / "out")
    torch.manual_seed(5)
    state = torch.get_rng_state()
    estimate([run], load_data(run.config.data))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.slow
def test_noise_of_other_programs_is_no_word_of_a_run_and_a_kill_is_told(
    images: Path, tmp_path: Path, trace: Path
) -> None:
    run = job(images, tmp_path / "out", "NoisyConfig", epochs=50)
    log = tmp_path / "logs" / f"{run.folder.path.name}.log"
    log.parent.mkdir()
    log.write_text("what went wrong another time\n")
    for event in execute([run], num_jobs=1, logs=log.parent):
        if isinstance(event, Moved) and event.step > 0 and not trace.exists():
            trace.touch()
    assert isinstance(event, Ended)
    assert event.problem == "it was killed by signal 9; was there too little memory?"
    assert b"\xff\xfe noise" in log.read_bytes()


@pytest.mark.slow
def test_run_that_was_taken_while_its_worker_got_ready_is_waited_for(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = job(images, tmp_path / "out")
    # As if the other process had come after the look and before the worker.
    looked = iter([False])
    monkeypatch.setattr("cicf.bench.engine.is_locked", lambda path: next(looked, is_locked(path)))
    with locked(run.folder.path):
        events = execute([run], num_jobs=1, logs=tmp_path / "logs")
        assert next(events) == Waiting((run,))
        events.close()
    assert not run.folder.has_run


@pytest.mark.parametrize("line", ['{"step": 3, "lo', "", "[1]", "\ufffd"])
def test_line_that_was_cut_off_says_nothing(line: str) -> None:
    assert _parsed(line) == {}
