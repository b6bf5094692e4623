"""Dots and intervals in percent of a line's width."""

import pytest
from tests.support.records import PACS, complete, run

from cicf.report.compare import compared
from cicf.report.page_plots import Plot, accuracy_plots, difference_plots
from cicf.results.table import Table
from cicf.results.tabulate import make_tables

PERCENTS = {seed: dict.fromkeys(PACS, 70.0 + 3 * seed) for seed in (0, 1)}


def table(against: str | None = None) -> Table:
    better = {seed: {n: p + 5 + seed for n, p in each.items()} for seed, each in PERCENTS.items()}
    made = make_tables([*complete(PERCENTS), *complete(better, method="cicf")]).tables
    return (made if against is None else compared(made, against))[0]


def places(plot: Plot, kind: str) -> list[float]:
    return [mark.at for track in plot.tracks for mark in track.marks if mark.kind == kind]


def test_the_average_comes_first_and_then_every_column() -> None:
    assert [plot.title for plot in accuracy_plots(table())] == ["Avg.", *PACS]


def test_a_mean_lies_amid_its_seeds_and_a_higher_one_further_right() -> None:
    plot = accuracy_plots(table())[1]
    low, high = places(plot, "mean")
    first, second, third, fourth = places(plot, "seed")
    assert low == pytest.approx((first + second) / 2, abs=0.01)
    assert high == pytest.approx((third + fourth) / 2, abs=0.01)
    assert low < high


def test_a_place_is_where_its_ticks_say() -> None:
    plot = accuracy_plots(table())[1]
    ticks = sorted((float(tick.text), tick.at) for tick in plot.ticks)
    (low, left), (high, right) = ticks[0], ticks[-1]
    expected = left + (71.5 - low) / (high - low) * (right - left)
    assert places(plot, "mean")[0] == pytest.approx(expected, abs=0.01)


def test_everything_lies_inside_of_the_line() -> None:
    for plot in (*accuracy_plots(table()), *difference_plots(table("erm"))):
        found = [*(mark.at for track in plot.tracks for mark in track.marks)]
        found += [end for track in plot.tracks for end in track.span or ()]
        assert all(4 <= place <= 96 for place in found)


def test_what_the_paper_prints_is_marked() -> None:
    marks = [mark for mark in accuracy_plots(table())[-1].tracks[0].marks if mark.kind == "paper"]
    assert len(marks) == 1
    assert marks[0].text.startswith("paper: ")


def test_one_seed_is_one_dot() -> None:
    (plot,) = accuracy_plots(make_tables([run(70.0, data="mine")]).tables[0])
    assert [mark.kind for mark in plot.tracks[0].marks] == ["mean"]
    assert len(plot.ticks) > 1


def test_differences_have_a_line_for_zero_and_an_interval_around_their_mean() -> None:
    plot = difference_plots(table("erm"))[0]
    (track,) = plot.tracks
    assert (track.label, track.number) == ("ERM+CICF", "+5.5")
    assert plot.zero is not None
    assert track.span is not None
    assert track.span[0] < track.marks[0].at < track.span[1]
    assert plot.zero < track.marks[0].at


def test_one_pair_has_no_interval_and_says_so() -> None:
    runs = [run(70.0), run(72.0, method="cicf")]
    (plot,) = difference_plots(compared(make_tables(runs).tables, "erm")[0])
    assert plot.tracks[0].span is None
    assert "no interval" in plot.tracks[0].marks[0].text


def test_a_table_that_is_not_compared_has_no_differences() -> None:
    assert difference_plots(table()) == ()
