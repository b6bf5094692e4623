"""`cicf ablate`: checked values, runs that are shared with `cicf bench`, a table and a figure."""

import json
from pathlib import Path

import pytest
from tests.support.runs import OPTIONS, Ended, folder_of_images, run_cli

ROOT = Path(__file__).parents[2]
SMALL = ("--set", "epochs=1", "--set", "outer.size=4")
MODEL = ("--set", f"model.name={OPTIONS[1]}", "--set", "model.weights=none", *OPTIONS[4:], *SMALL)
M = ("--set", "inner.size=8")


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    return folder_of_images(tmp_path / "photos", ("art", "photo"), ("cat", "dog"), 6)


def ablate(images: Path, over: str, *words: object) -> Ended:
    out = images.parent / "out"
    return run_cli("ablate", images, "--over", over, "--out", out, *MODEL, *words)


@pytest.mark.slow
def test_fast_runs_once_on_the_embedded_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    words = ("ablate", "demo", "--over", "sampling", "--out", tmp_path / "out", "--jobs", 2)
    words += MODEL[:6]
    first = run_cli(*words, "--fast", "--baseline", "none")
    assert first.code == 0, first.err
    assert "0 have ended, 0 were begun, 2 are to start" in first.err
    assert "one seed: no bars" in first.out
    figure = tmp_path / "out" / "ablation-sampling.png"
    drawn = figure.read_bytes()
    again = run_cli(*words, "--fast", "--baseline", "none")
    assert "2 have ended, 0 were begun, 0 are to start" in again.err
    assert (again.out, figure.read_bytes()) == (first.out, drawn)
    from_runs = run_cli(*words, "--plot-only", "--json", "-o", tmp_path / "again")
    found = json.loads(from_runs.out)
    (curve,) = found["curves"]
    assert [point["value"] for point in curve["points"]] == ["random", "clusters"]
    assert curve["baseline"] is None
    assert Path(found["files"][0]) == tmp_path / "again.pdf"


@pytest.mark.parametrize(
    ("over", "runs", "said"),
    [
        ("batch-size", 9, "inner.size=3: "),
        ("clusters", 12, "clusters.per_class=5: "),
        ("cut", 12, "model.cut=input: "),
        ("sampling", 12, "method.sampling=class-weighted: "),
        ("order", 9, "method.order=1: "),
    ],
)
def test_every_value_meets_every_domain_and_seed_and_erm(
    images: Path, over: str, runs: int, said: str
) -> None:
    words = ["--targets", "photo", "--dry-run", *(() if over == "batch-size" else M)]
    words += {"batch-size": ["--values", "3,6"], "cut": ["--values", "input,0,2"]}.get(over, [])
    if over == "clusters":
        words += ["--values", "1,3,5"]
    ended = ablate(images, over, *words)
    assert ended.code == 0, ended.err
    assert f"{runs} runs in" in ended.err
    assert f"cicf, basic, {said}" in ended.err
    assert "erm, basic: " in ended.err
    assert not (images.parent / "out").exists()


def test_baseline_none_leaves_erm_out(images: Path) -> None:
    ended = ablate(images, "order", "--baseline", "none", "--dry-run", "--seeds", 1, *M)
    assert "4 runs in" in ended.err
    assert "erm, basic" not in ended.err


@pytest.mark.parametrize(
    ("over", "words", "sentence"),
    [
        ("batch-size", ("--values", "0,8"), "inner.size=0 cannot be"),
        ("batch-size", ("--values", "many,8"), "inner.size='many' cannot be"),
        ("batch-size", ("--values", "4,80"), "M=80 is larger than the training set of 'art'"),
        ("batch-size", ("--values", "8"), "is one value of inner.size; name two or more"),
        ("batch-size", ("--values", ","), "--values ',' names nothing"),
        ("batch-size", M, "inner.size=8 cannot be set, because --over batch-size varies it"),
        ("clusters", ("--values", "0,3"), "clusters.per_class=0 cannot be"),
        ("cut", (), "the stages of model='tests.support.runs:tiny_net' are not known"),
        ("cut", ("--values", "input,Z_0"), "cut='Z_0' is no stage and no module of the network"),
        ("sampling", ("--values", "random,cluster"), "did you mean 'clusters'"),
        ("order", ("--values", "1,3"), "--values '3' is no method.order; choose one of '1', '2'"),
        ("order", ("--method", "erm"), "method.order is no option"),
        ("order", ("--targets", "moon"), "--targets 'moon' is no domain"),
        ("order", ("--plot-only",), "is no folder"),
    ],
)
def test_mistakes_are_one_sentence_before_anything_runs(
    images: Path, over: str, words: tuple[str, ...], sentence: str
) -> None:
    ended = ablate(images, over, *words)
    assert ended.code == 2
    assert sentence in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert not (images.parent / "out").exists()


def test_figure_in_the_folder_of_a_run_is_refused_before_anything_runs(
    images: Path, tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    ended = ablate(images, "order", "-o", tmp_path / "run" / "figure")
    assert ended.code == 2
    assert "lies in the folder of a run" in ended.err
