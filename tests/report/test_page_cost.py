"""Seconds by phase, as bars and as a table."""

import pytest
from tests.support.records import run

from cicf.report.page_cost import cost_grid, costs, total_seconds
from cicf.results.record import Record


def record(seconds: dict[str, float], **changes: object) -> Record:
    return run(70.0, seconds=seconds, **changes).record


def test_the_longest_row_fills_the_width_and_the_others_their_share() -> None:
    slow, quick = costs(
        {
            "slow": [record({"steps": 6.0, "evaluation": 2.0})],
            "quick": [record({"steps": 1.0, "evaluation": 1.0})],
        }
    )
    assert sum(phase.width for phase in slow.phases) == pytest.approx(100)
    assert [(phase.start, phase.width) for phase in quick.phases] == [(0, 12.5), (12.5, 12.5)]


def test_a_row_is_the_mean_of_its_runs() -> None:
    (cost,) = costs({"ERM": [record({"steps": 2.0}), record({"steps": 4.0})]})
    assert (cost.total, cost.n) == (3.0, 2)
    # Five epochs of three steps in both runs.
    assert cost.step == pytest.approx(6.0 / 30)


def test_what_steps_consist_of_is_told_and_not_counted_twice() -> None:
    one = record({"steps": 4.0, "pass 1": 1.5, "pass 2": 2.5})
    assert total_seconds(one) == 4.0
    (cost,) = costs({"CICF": [one]})
    assert cost.parts == (("pass 1", 1.5), ("pass 2", 2.5))
    assert "of steps: pass 1" in cost_grid([cost]).head


def test_what_no_run_knows_has_no_column() -> None:
    head = cost_grid(costs({"ERM": [record({"steps": 1.0})]})).head
    assert head == ("method", "total in s", "steps", "step in ms", "runs")
    known = cost_grid(costs({"ERM": [record({"steps": 1.0}, peak_memory=5_000_000)]}))
    assert dict(zip(known.head[1:], known.lines[0].items, strict=True))["peak in MB"].text == "5.0"


def test_runs_without_times_cost_nothing_and_break_nothing() -> None:
    (cost,) = costs({"ERM": [record({})]})
    assert (cost.total, cost.step, cost.phases) == (0.0, None, ())
