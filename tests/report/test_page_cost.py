"""Seconds by phase, as bars and as a table."""

import pytest
from tests.support.records import run

from cicf.report.page_cost import RowCost, cost_grid, costs, total_seconds
from cicf.results.runs import FoundRun


def took(seconds: dict[str, float], path: str = "a", **changes: object) -> FoundRun:
    return run(70.0, seconds=seconds, path=path, **changes)


def only(*runs: FoundRun) -> RowCost:
    (row,) = costs({"row": runs}).rows
    return row


def test_the_longest_row_fills_the_width_and_the_others_their_share() -> None:
    slow, quick = costs(
        {
            "slow": [took({"steps": 6.0, "evaluation": 2.0}, "a")],
            "quick": [took({"steps": 1.0, "evaluation": 1.0}, "b")],
        }
    ).rows
    assert sum(phase.width for phase in slow.phases) == pytest.approx(100)
    assert [(phase.start, phase.width) for phase in quick.phases] == [(0, 12.5), (12.5, 12.5)]


def test_a_row_is_the_mean_of_its_runs() -> None:
    row = only(took({"steps": 2.0}, "a"), took({"steps": 4.0}, "b"))
    assert (row.total, row.n) == (3.0, 2)
    # Five epochs of three steps in both runs.
    assert row.step == pytest.approx(6.0 / 30)


def test_what_steps_consist_of_is_shown_and_not_counted_twice() -> None:
    one = took({"steps": 4.0, "pass 1": 1.5, "pass 2": 2.0})
    row = only(one)
    assert {phase.name: phase.seconds for phase in row.phases} == pytest.approx(
        {"pass 1": 1.5, "pass 2": 2.0, "rest of the step": 0.5}
    )
    assert row.total == total_seconds(one.record) == 4.0
    assert row.step == pytest.approx(4.0 / 15)


def test_what_no_run_knows_has_no_column() -> None:
    head = cost_grid(costs({"ERM": [took({"steps": 1.0})]})).head
    assert head == ("method", "total in s", "steps", "step in ms", "runs")
    known = cost_grid(costs({"ERM": [took({"steps": 1.0}, peak_memory=5_000_000)]}))
    assert dict(zip(known.head[1:], known.lines[0].items, strict=True))["peak in MB"].text == "5.0"


def test_costs_are_told_as_multiples_of_erm() -> None:
    rows = {
        "ERM": [took({"steps": 2.0}, "a")],
        "CICF": [took({"steps": 4.0, "clustering": 1.0}, "b", method="cicf")],
    }
    erm, cicf = costs(rows).rows
    assert (erm.times_erm, cicf.times_erm) == (None, 2.5)
    assert cicf.clustering_percent == pytest.approx(20.0)


def test_runs_without_times_cost_nothing_and_break_nothing() -> None:
    row = only(took({}))
    assert (row.total, row.step, row.phases) == (0.0, None, ())


def test_no_two_phases_of_a_training_look_alike() -> None:
    names = ("clustering", "data", "pass 1", "pass 2", "pass 3", "loss at θ", "evaluation")
    timed = took({**dict.fromkeys((*names, "checkpoints"), 1.0), "steps": 5.0})
    looks = [(phase.series, phase.shade) for phase in only(timed).phases]
    assert len(looks) == len(set(looks)) == 9
    assert all(series < 8 and shade < 5 for series, shade in looks)
