"""`cicf bench`: a plan, the runs that are missing, a table, and the failures."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.bench import TRACE
from tests.support.runs import OPTIONS, Ended, folder_of_images, run_cli

from cicf.bench import Grid, make_jobs
from cicf.bench.engine import GRACE
from cicf.methods import METHODS

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


@pytest.mark.parametrize(("preset", "seeds"), [("recommended", 6), ("cpu", 1)])
def test_seeds_are_as_many_as_the_papers_and_one_for_a_look(
    images: Path, preset: str, seeds: int
) -> None:
    words = ("--methods", "erm", "--targets", "art", "--preset", preset, "--dry-run")
    ended = run_cli("bench", images, "--out", images.parent / "out", *MODEL, *words)
    assert f"{seeds} runs in" in ended.err
    at_once = (os.cpu_count() or 1) if preset == "cpu" else 1
    assert f"if {at_once} at a time do not slow each other down" in ended.err


def test_dry_run_prints_the_plan_and_leaves_nothing(images: Path) -> None:
    ended = bench(images, "--methods", "erm,cicf", "--augment", "basic,autoaugment", "--dry-run")
    assert ended.code == 0, ended.err
    assert "8 runs in" in ended.err
    assert "0 have ended, 0 were begun, 8 are to start" in ended.err
    assert ended.err.count("s (measured now)") == 4
    assert "of disk" in ended.err
    assert not (images.parent / "out").exists()


def test_all_methods_can_be_run(images: Path) -> None:
    ended = bench(images, "--methods", "all", "--targets", "art", "--dry-run")
    assert ended.code == 0, ended.err
    assert f"{len(METHODS)} runs in" in ended.err
    assert [name for name in METHODS if f"  {name}, basic: " not in ended.err] == []


def test_an_option_may_be_one_that_only_some_of_the_methods_have(images: Path) -> None:
    words = ("--methods", "erm,maml", "--set", "method.tasks=cross", "--targets", "art")
    ended = bench(images, *words, "--dry-run")
    assert "method.tasks" not in ended.err
    assert "erm, basic: " in ended.err


def test_plan_counts_all_phases_of_a_method(images: Path) -> None:
    methods = "erm,tests.support.phased:FreshConfig"
    ended = bench(images, "--methods", methods, "--targets", "art", "--dry-run")
    assert ended.code == 0, ended.err
    steps = [int(each) for each in re.findall(r"basic: (\d+) steps of", ended.err)]
    assert steps == [2, 6]


def test_a_base_is_for_the_methods_that_have_one(images: Path) -> None:
    over = {"method": {"base": "erm"}, "average": {"name": "swad"}}
    grid = Grid(str(images), ("erm", "cicf"), ("basic",), (), seeds=1)
    jobs = make_jobs(grid, over, known=("art", "photo"), fingerprint="", out=images)
    bases = {job.config.method.name: getattr(job.config.method, "base", None) for job in jobs}
    assert bases["erm"] is None
    assert bases["cicf"] is not None
    assert bases["cicf"].name == "erm"
    assert {job.config.average.name for job in jobs} == {"swad"}


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
@pytest.mark.parametrize("is_background", [False, True])
def test_stopped_bench_stops_its_runs_and_says_how_to_go_on(
    images: Path, is_background: bool
) -> None:
    words = ["bench", images, "--out", images.parent / "out", "--seeds", 1, *MODEL]
    words += ["--methods", "tests.support.bench:TracedConfig", "--set", "epochs=100000"]
    process = subprocess.Popen(
        [SCRIPT, *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        # A shell has its background jobs ignore what the keyboard sends.
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
        if is_background
        else None,
    )
    trace, deadline = Path(os.environ[TRACE]), time.monotonic() + 90
    while not trace.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    began = time.monotonic()
    process.send_signal(signal.SIGTERM if is_background else signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err.splitlines()[-1].startswith("cicf: stopped; start the same command again")
    assert "Traceback" not in err
    # Soon, and not by force after a time of grace.
    assert time.monotonic() - began < GRACE
    taken = len(trace.read_text())
    time.sleep(0.3)
    assert len(trace.read_text()) == taken


@pytest.mark.slow
def test_bench_that_must_outlive_its_terminal_does(images: Path) -> None:
    words = [SCRIPT, "bench", images, "--out", images.parent / "out", "--seeds", "1", *MODEL]
    words += ["--methods", "erm", "--targets", "art"]
    process = subprocess.Popen(
        list(map(str, words)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGHUP)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "ERM" in out


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
        (("--methods", "erm,maml", "--base", "erm"), "method.base is no option of erm, maml"),
        (("--average", "swat"), "average.name='swat' cannot be"),
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
    ended = bench(images, "--methods", "erm,maml", "--protocol", "single-source", "--dry-run")
    assert ended.code == 0, ended.err
    assert "maml, basic: cannot run: " in ended.err


@pytest.mark.slow
def test_damaged_result_is_a_failure_and_names_what_to_remove(images: Path) -> None:
    words = ("--methods", "erm", "--targets", "photo")
    assert bench(images, *words).code == 0
    (result,) = (images.parent / "out").glob("*/result.json")
    result.write_text("garbage")
    ended = bench(images, *words)
    assert ended.code == 1
    assert f"remove {result.parent} and run it again" in ended.err


def test_file_of_a_preset_may_be_used_for_a_table_with_erm(images: Path, tmp_path: Path) -> None:
    preset = run_cli("preset", "cpu", "--data", images, "--augment", "autoaugment")
    (tmp_path / "cpu.toml").write_text(preset.out)
    words = ("--config", tmp_path / "cpu.toml", "--methods", "erm,cicf", "--dry-run")
    ended = bench(images, *words)
    assert ended.code == 0, ended.err
    assert "erm, autoaugment: " in ended.err
    assert "cicf, autoaugment: " in ended.err


def test_method_of_a_file_is_the_one_that_is_run(images: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[method]\nname = 'cicf'\nalpha = 0.2\n")
    ended = bench(images, "--config", tmp_path / "own.toml", "--dry-run")
    assert ended.code == 0, ended.err
    assert "2 runs in" in ended.err


def test_nothing_that_can_run_is_a_mistake(images: Path) -> None:
    ended = bench(images, "--methods", "maml", "--protocol", "single-source", "--dry-run")
    assert ended.code == 2
    assert "cicf: none of the runs can be done: each of the 1 tasks" in ended.err


def test_network_that_breaks_is_told_with_the_plan(images: Path) -> None:
    ended = bench(images, "--methods", "erm", "--set", "model.name=os:getpgid", "--dry-run")
    assert ended.code == 2
    assert "Traceback" not in ended.err


def test_domain_whose_name_looks_like_markup_is_shown(tmp_path: Path, monkeypatch: Any) -> None:
    images = folder_of_images(tmp_path / "photos", ("art", "q[bold]"), ("cat", "dog"), 6)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ended = bench(images, "--methods", "erm", "--targets", "q[bold]")
    assert ended.code == 0, ended.err
    assert "q[bold]" in ended.err
