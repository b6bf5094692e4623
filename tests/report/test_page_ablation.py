"""Ablations on the page, where runs differ in one option alone."""

import pytest
from tests.support.records import run

from cicf.report.page import make_sections
from cicf.report.page_ablation import page_ablations
from cicf.results.runs import FoundRun


def sampled(sampling: str, percent: float, seed: int) -> FoundRun:
    made = run(percent, method="cicf", seed=seed, options={"method.sampling": sampling})
    setup = made.record.setup.model_copy(update={"inner_size": 96})
    record = made.record.model_copy(update={"setup": setup})
    return made.model_copy(update={"record": record, "path": made.path / sampling})


RUNS = [
    sampled(name, percent + seed, seed)
    for name, percent in (("random", 70.0), ("clusters", 74.0))
    for seed in (0, 1)
]


def test_an_option_that_alone_differs_has_a_plot_and_a_table() -> None:
    (found,) = page_ablations([*RUNS, run(68.0, seed=0), run(69.0, seed=1)])
    assert found.option == "method.sampling"
    ((plot, grid),) = found.curves
    assert [track.label for track in plot.tracks] == ["random", "clusters", "ERM"]
    assert [line.items[0].value for line in grid.lines] == pytest.approx([70.5, 74.5, 68.5])
    # Seeds that lie a point apart have a deviation of 1/√2, and their mean an error of 1/2.
    assert [line.items[1].value for line in grid.lines] == pytest.approx([0.5, 0.5, 0.5])
    assert [line.items[2].text[:4] for line in grid.lines] == ["+2.0", "+6.0", "–"]


def test_runs_that_differ_in_more_have_none() -> None:
    assert page_ablations([run(70.0), run(71.0, method="cicf")]) == ()


def test_the_page_has_the_ablations_of_its_runs() -> None:
    (section,) = make_sections(RUNS).sections
    assert [each.option for each in section.ablations] == ["method.sampling"]
