"""Rows against one of them: who is paired with whom, and who is left out by name."""

import pytest
from tests.support.records import PACS, complete, run

from cicf.core import ResultError
from cicf.report.compare import compared
from cicf.results.runs import FoundRun
from cicf.results.table import ComparedRow, Comparison
from cicf.results.tabulate import make_tables


def comparison(runs: list[FoundRun], against: str = "erm") -> Comparison:
    (table,) = compared(make_tables(runs).tables, against)
    assert table.comparison is not None
    return table.comparison


def the_row(runs: list[FoundRun], against: str = "erm") -> ComparedRow:
    (found,) = comparison(runs, against).rows
    return found


def pairs(method: str, percents: list[float], **options: str) -> list[FoundRun]:
    return [run(p, method=method, seed=seed, **options) for seed, p in enumerate(percents)]


def test_differences_are_of_runs_with_the_same_seed() -> None:
    # By seed 1, 1 and 1; in any other pairing they would vary.
    row = the_row([*pairs("erm", [60.0, 70.0, 80.0]), *pairs("cicf", [61.0, 71.0, 81.0])])
    cell = row.cells["sketch"]
    assert (cell.mean, cell.low, cell.high) == pytest.approx((1.0, 1.0, 1.0))


def test_rows_are_compared_with_the_method_under_the_same_augmentation() -> None:
    runs = [
        run(p, method=method, augment=augment)
        for method, augment, p in (
            ("erm", "basic", 70.0),
            ("cicf", "basic", 71.0),
            ("erm", "autoaugment", 80.0),
            ("cicf", "autoaugment", 83.0),
        )
    ]
    rows = comparison(runs).rows
    assert [(row.label, row.against) for row in rows] == [
        ("ERM+CICF", "ERM"),
        ("ERM*+CICF", "ERM*"),
    ]
    assert [row.cells["sketch"].mean for row in rows] == pytest.approx([1.0, 3.0])


def test_a_label_means_that_very_row() -> None:
    runs = [run(70.0), run(80.0, augment="autoaugment"), run(75.0, method="cicf")]
    found = {row.label: row.against for row in comparison(runs, "ERM*").rows}
    assert found == {"ERM": "ERM*", "ERM+CICF": "ERM*"}


def test_a_row_without_a_partner_is_named() -> None:
    found = comparison([run(70.0), run(75.0, method="cicf", augment="autoaugment")])
    assert found.rows == ()
    assert "ERM*+CICF: erm has no row with the same augmentation" in found.footnotes


def test_rows_that_lack_the_same_seeds_share_a_sentence() -> None:
    runs = pairs("erm", [70.0, 71.0])
    runs += [run(73.0, method=name) for name in ("cicf", "maml", "rsc", "fish")]
    left_out = [note for note in comparison(runs).footnotes if "has no partner" in note]
    assert left_out == [
        "ERM, sketch: seed 1 has no partner in Fish nor in RSC nor in 2 more rows "
        "and is left out of the differences"
    ]


def test_an_average_of_differences_is_over_the_columns_that_there_are() -> None:
    runs = [run(60.0, target=name) for name in ("photo", "sketch")]
    runs += [run(62.0, method="cicf", target="photo"), run(63.0, method="cicf", target="sketch")]
    row = the_row(runs)
    assert row.average is not None
    assert row.average.mean == pytest.approx(2.5)


def test_seeds_without_a_partner_are_named_on_either_side() -> None:
    runs = [*pairs("erm", [70.0, 71.0, 72.0]), run(73.0, method="cicf", seed=2)]
    runs.append(run(74.0, method="cicf", seed=7))
    found = comparison(runs)
    assert found.rows[0].cells["sketch"].n == 1
    left_out = [note for note in found.footnotes if "has no partner" in note]
    assert [note.split(" has")[0] for note in left_out] == [
        "ERM+CICF, sketch: seed 7",
        "ERM, sketch: seed 0, 1",
    ]


def test_the_average_takes_the_mean_over_targets() -> None:
    base = {seed: dict.fromkeys(PACS, 70.0) for seed in (0, 1)}
    better = {
        seed: dict(zip(PACS, (71.0, 72.0, 73.0, 74.0 + 4 * seed), strict=True)) for seed in (0, 1)
    }
    row = the_row([*complete(base), *complete(better, method="cicf")])
    assert row.average is not None
    assert row.average.mean == pytest.approx((1 + 2 + 3 + 6) / 4)
    assert row.average.df == 4


def test_a_row_that_lacks_a_target_has_no_average() -> None:
    base = {0: dict.fromkeys(PACS, 70.0)}
    assert the_row([*complete(base), run(71.0, method="cicf")]).average is None


def test_one_seed_says_that_there_is_no_interval() -> None:
    found = comparison([run(70.0), run(71.0, method="cicf")])
    assert found.rows[0].cells["sketch"].low is None
    assert "n = 1: no interval" in found.footnotes


def test_an_unknown_row_is_refused_with_a_guess() -> None:
    with pytest.raises(ResultError, match=r"--compare 'emr' is no method or row .* mean 'erm'\?"):
        comparison([run(70.0)], "emr")


def test_a_method_with_several_rows_is_refused_with_their_labels() -> None:
    runs = [run(70.0, options={"optim.lr": lr}) for lr in (0.1, 0.2)]
    with pytest.raises(ResultError, match=r"name one of them, 'ERM \(optim.lr=0.1\)' or 'ERM"):
        comparison([*runs, run(71.0, method="cicf")])
