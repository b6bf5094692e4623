"""What runs took: phases that add up, shares, and ratios to ERM's run."""

import csv
from pathlib import Path
from typing import Any

import pytest
from tests.support.records import run

from cicf.core import ResultError
from cicf.report.cost import Cost, cost_tables
from cicf.report.cost_figure import HEAD, save_costs
from cicf.results.runs import FoundRun

CICF = {
    "clustering": 4.0,
    "data": 1.0,
    "steps": 80.0,
    "evaluation": 10.0,
    "checkpoints": 5.0,
    "pass 1": 20.0,
    "pass 2": 15.0,
    "pass 3": 30.0,
    "loss at θ": 5.0,
}
ERM = {"clustering": 0.0, "data": 1.0, "steps": 20.0, "evaluation": 3.0, "checkpoints": 1.0}


def cicf(seconds: dict[str, float] = CICF, **changes: Any) -> FoundRun:
    found = run(70.0, method="cicf", seconds=seconds, **changes)
    setup = found.record.setup.model_copy(update={"inner_size": 64})
    return found.model_copy(update={"record": found.record.model_copy(update={"setup": setup})})


def only(*runs: FoundRun) -> tuple[Cost, ...]:
    (table,) = cost_tables(runs)
    return table.costs


def test_phases_add_up_to_the_time_of_the_whole() -> None:
    (cost,) = only(cicf())
    assert cost.total == 100
    assert list(cost.seconds) == [
        *("clustering", "data", "pass 1", "pass 2", "pass 3", "loss at θ"),
        *("rest of the step", "evaluation", "checkpoints"),
    ]
    assert cost.seconds["rest of the step"] == 10


def test_share_of_clustering_is_the_papers() -> None:
    (cost,) = only(cicf({"clustering": 164.0, "steps": 3432.0 - 164.0}))
    assert cost.clustering_percent == pytest.approx(4.8, abs=0.05)


def test_erm_has_nothing_to_cluster_and_its_steps_are_one_phase() -> None:
    (cost,) = only(run(60.0, seconds=ERM))
    assert cost.clustering_percent is None
    assert list(cost.seconds) == ["data", "steps", "evaluation", "checkpoints"]


def test_an_epoch_is_a_share_of_the_whole() -> None:
    (cost,) = only(cicf())
    assert (cost.epochs, cost.steps) == (5, 15)
    assert cost.per_epoch == 20


def test_ratios_are_to_the_run_of_erm_with_the_same_domain_and_seed() -> None:
    slow = {name: 10 * value for name, value in ERM.items()}
    found = only(
        run(60.0, seed=1, seconds=slow, peak_memory=100),
        run(60.0, seed=0, seconds=ERM, peak_memory=50),
        cicf(seed=0, peak_memory=200),
    )
    assert found[2].against == "ERM, sketch, seed 0"
    assert found[2].times_erm == 100 / 25
    assert found[2].memory_times_erm == 4
    assert found[0].times_erm is None


def test_a_longer_run_of_erm_is_compared_epoch_by_epoch() -> None:
    erm = run(60.0, seconds=ERM)
    last = erm.record.last.model_copy(update={"epoch": 50})
    erm = erm.model_copy(update={"record": erm.record.model_copy(update={"last": last})})
    assert only(erm, cicf())[1].times_erm == pytest.approx((100 / 5) / (25 / 50))


def test_another_domain_stands_in_and_is_named() -> None:
    (table,) = cost_tables([run(60.0, target="photo", seconds=ERM), cicf()])
    assert table.costs[1].against == "ERM, photo, seed 0"
    assert "ERM+CICF, sketch, seed 0 is compared with ERM, photo, seed 0" in " ".join(
        table.footnotes
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"fingerprint": "f"},
        {"model": "resnet50"},
        {"part": "official test part"},
        {"source": "photo"},
    ],
)
def test_runs_of_other_data_protocols_or_networks_are_told_apart(changes: dict[str, Any]) -> None:
    tables = cost_tables([run(60.0, seconds=ERM), cicf(**changes)])
    assert len(tables) == 2
    assert all(cost.times_erm is None for table in tables for cost in table.costs)


def test_records_from_before_passes_and_memory_were_measured_are_shown() -> None:
    (table,) = cost_tables([cicf({"clustering": 1.0, "steps": 9.0})])
    assert table.costs[0].seconds == {"clustering": 1.0, "steps": 9.0}
    assert table.costs[0].peak_memory is None
    notes = " ".join(table.footnotes)
    assert "their passes were not timed" in notes
    assert "no memory" in notes


def test_passes_that_take_longer_than_the_steps_leave_no_rest() -> None:
    (cost,) = only(cicf({"steps": 1.0, "pass 1": 1.5}))
    assert cost.seconds == {"pass 1": 1.5, "rest of the step": 0.0}


def test_no_run_is_a_mistake() -> None:
    with pytest.raises(ResultError, match="no finished run"):
        cost_tables([])


def test_the_figure_comes_with_its_numbers(tmp_path: Path) -> None:
    tables = cost_tables([run(60.0, seconds=ERM), cicf(), cicf(model="vgg")])
    files = save_costs(tables, tmp_path / "cost", command="cicf x")
    assert [file.suffix for file in files] == [".pdf", ".svg", ".png", ".csv"]
    rows = list(csv.DictReader(files[-1].read_text().splitlines()))
    assert tuple(rows[0]) == HEAD
    totals = [float(row["seconds"]) for row in rows if row["phase"] == "total"]
    assert totals == [25.0, 100.0, 100.0]
    shares = [float(row["percent"]) for row in rows if row["phase"] != "total"]
    assert sum(shares) == pytest.approx(300)
    (third,) = (r for r in rows if (r["phase"], r["model"]) == ("pass 3", "vgg"))
    assert (float(third["seconds_per_epoch"]), float(third["percent"])) == (6.0, 30.0)
