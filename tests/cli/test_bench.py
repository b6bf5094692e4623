"""`cicf bench`: a plan, the runs that are missing, a table, and the failures."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.bench import TRACE
from tests.support.runs import OPTIONS, Ended, folder_of_images, run_cli

ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.executable).with_name("cicf")
SMALL = ("--set", "epochs=1", "--set", "inner.size=8", "--set", "outer.size=4")
MODEL = ("--set", f"model.name={OPTIONS[1]}", "--set", "model.weights=none", *OPTIONS[4:], *SMALL)


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv(TRACE, str(tmp_path / "trace"))
    return folder_of_images(tmp_path / "photos", ("art", "photo"), ("cat", "dog"), 6)


def bench(images: Path, *words: object) -> Ended:
    out = images.parent / "out"
    return run_cli("bench", images, "--out", out, "--seeds", 1, *MODEL, *words)


def test_dry_run_prints_the_plan_and_leaves_nothing(images: Path) -> None:
    ended = bench(images, "--methods", "erm,cicf", "--augment", "basic,autoaugment", "--dry-run")
    assert ended.code == 0, ended.err
    assert "8 runs in" in ended.err
    assert "0 have ended, 0 were begun, 8 are to start" in ended.err
    assert ended.err.count("s (measured now)") == 4
    assert "of disk" in ended.err
    assert not (images.parent / "out").exists()


@pytest.mark.slow
def test_bench_runs_what_is_missing_and_prints_the_table(images: Path) -> None:
    first = bench(images, "--methods", "erm", "--jobs", 2)
    assert first.code == 0, first.err
    assert "2 of 2: erm, basic, target" in first.err
    assert "ERM" in first.out
    assert "protocol: leave-one-domain-out" in first.out
    again = bench(images, "--methods", "erm", "--jobs", 2)
    assert "2 have ended, 0 were begun, 0 are to start" in again.err
    assert again.out == first.out


@pytest.mark.slow
def test_failures_are_listed_with_their_logs_at_the_end(images: Path) -> None:
    Path(os.environ[TRACE]).touch()
    name = "tests.support.bench:CrashingConfig"
    ended = bench(images, "--methods", name, "--targets", "photo", "--set", "epochs=2")
    assert ended.code == 1
    said = ended.err.splitlines()
    assert said[-2].startswith(f"failed: {name}, basic, target photo, seed 0: RuntimeError")
    log = Path(said[-1].partition("log: ")[2])
    assert "the machine is on fire" in log.read_text()


@pytest.mark.slow
def test_interrupt_stops_the_runs_and_says_how_to_go_on(images: Path) -> None:
    words = ["bench", images, "--out", images.parent / "out", "--seeds", 1, *MODEL]
    words += ["--methods", "tests.support.bench:TracedConfig", "--set", "epochs=100000"]
    process = subprocess.Popen([SCRIPT, *map(str, words)], stderr=subprocess.PIPE, text=True)
    trace, deadline = Path(os.environ[TRACE]), time.monotonic() + 90
    while not trace.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("cicf: stopped; start the same command again")
    assert "Traceback" not in err
    taken = len(trace.read_text())
    time.sleep(0.3)
    assert len(trace.read_text()) == taken


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--methods", ","), "--methods ',' names nothing"),
        (("--methods", "ermm"), "method.name='ermm' is not known"),
        (("--augment", "strong"), "data.augment='strong'"),
        (("--targets", "moon"), "--targets 'moon' is no domain"),
        (("--preset", "fast"), "--preset 'fast' is none"),
        (("--preset", "paper"), "--preset 'paper' has values for pacs"),
        (("--set", "epochs=0"), "epochs=0 cannot be"),
    ],
)
def test_mistakes_are_one_sentence(images: Path, words: tuple[str, ...], sentence: str) -> None:
    ended = bench(images, *words)
    assert ended.code == 2
    assert sentence in ended.err
    assert len(ended.err.strip().splitlines()) == 1


def test_benchmark_without_its_images_is_refused(tmp_path: Path) -> None:
    ended = run_cli("bench", "pacs", "--preset", "paper")
    assert ended.code == 2
    assert "the images of PACS do not come with the package; say where they are" in ended.err
    ended = run_cli("bench", "pacs", "--root", tmp_path / "nowhere")
    assert "does not exist" in ended.err


def test_kind_that_cannot_run_is_told_before_the_runs(images: Path) -> None:
    ended = bench(images, "--methods", "maml", "--protocol", "single-source", "--dry-run")
    assert ended.code == 0
    assert "maml, basic: cannot run: " in ended.err
