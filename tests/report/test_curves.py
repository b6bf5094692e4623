"""Learning curves of rows of runs, from what the runs logged."""

import json
from pathlib import Path

import pytest

from cicf.report.curves import Curve, Curves, learning_curves
from cicf.results.folder import Values


def log(folder: Path, *rows: Values) -> Path:
    folder.mkdir()
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "metrics.jsonl").write_text(lines)
    return folder


def step(epoch: int, **terms: float | None) -> Values:
    return {"kind": "step", "step": 1, "epoch": epoch, **terms}


def ended(epoch: int, theta: float, dagger: float | None = None) -> Values:
    found = {"theta": {"all": theta}, "theta_dagger": None if dagger is None else {"all": dagger}}
    return {"kind": "epoch", "step": 1, "epoch": epoch, "validation": found}


def only(curves: tuple[Curve, ...]) -> Curve:
    (curve,) = curves
    return curve


def test_a_curve_is_the_mean_of_runs_between_the_lowest_and_the_highest(tmp_path: Path) -> None:
    runs = [
        log(tmp_path / name, ended(1, percent), ended(2, percent + 10))
        for name, percent in (("a", 40.0), ("b", 50.0), ("c", 75.0))
    ]
    curve = only(learning_curves({"ERM": runs}).accuracy)
    assert curve == Curve("ERM", "theta", (1, 2), (55.0, 65.0), (40.0, 50.0), (75.0, 85.0), 3)


def test_the_loss_of_an_epoch_is_the_mean_of_its_logged_steps(tmp_path: Path) -> None:
    run = log(tmp_path / "a", step(1, loss=3.0), step(1, loss=2.0), step(2, loss=1.0))
    curve = only(learning_curves({"ERM": [run]}).loss)
    assert (curve.parameters, curve.mean) == ("theta", (2.5, 1.0))


def test_with_a_virtual_step_the_loss_is_told_at_theta_and_at_theta_dagger(tmp_path: Path) -> None:
    run = log(tmp_path / "a", step(1, loss=1.5, loss_at_theta=2.0), ended(1, 30.0, 40.0))
    found = learning_curves({"CICF": [run]})
    assert [(c.parameters, c.mean) for c in found.loss] == [
        ("theta", (2.0,)),
        ("theta_dagger", (1.5,)),
    ]
    assert [c.mean for c in found.accuracy] == [(30.0,), (40.0,)]


def test_a_loss_that_was_not_finite_is_left_out(tmp_path: Path) -> None:
    run = log(tmp_path / "a", step(1, loss=None), step(1, loss=4.0))
    assert only(learning_curves({"ERM": [run]}).loss).mean == (4.0,)


def test_no_mean_is_over_fewer_runs_than_another(tmp_path: Path) -> None:
    short = log(tmp_path / "a", ended(1, 10.0))
    long = log(tmp_path / "b", ended(1, 20.0), ended(2, 90.0))
    assert only(learning_curves({"ERM": [short, long]}).accuracy).epochs == (1,)


def test_rows_keep_their_order(tmp_path: Path) -> None:
    run = log(tmp_path / "a", ended(1, 10.0))
    assert learning_curves({"z": [run], "a": [run]}).labels == ("z", "a")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "has no metrics.jsonl"),
        ("", "has no metrics.jsonl"),
        ("{broken\n", "is no JSON"),
        ("[1]\n", "has a row without an epoch"),
        ('{"kind": "step"}\n', "has a row without an epoch"),
    ],
)
def test_a_run_without_a_curve_is_named_with_the_reason(
    tmp_path: Path, content: str | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "metrics.jsonl").write_text(content)
    found = learning_curves({"ERM": [tmp_path]})
    assert found[:2] == ((), ())
    (sentence,) = found.missing
    assert sentence.startswith(str(tmp_path))
    assert reason in sentence


def test_no_rows_have_no_curves() -> None:
    assert learning_curves({}) == Curves((), ())
