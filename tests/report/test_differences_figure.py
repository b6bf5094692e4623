"""The figure of paired differences, by its data and by what is drawn."""

import csv
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from tests.support.records import PACS, run, write
from tests.support.runs import run_cli

from cicf.core import ResultError
from cicf.report.compare import compared
from cicf.report.differences_figure import draw_differences, save_differences
from cicf.results.runs import FoundRun
from cicf.results.tabulate import make_tables

GAINS = {"art_painting": 1.0, "cartoon": -2.0, "photo": 0.5, "sketch": 4.5}


def runs(seeds: int, **over: object) -> list[FoundRun]:
    """Return runs in which CICF gains so much, and with every further seed 0.2 more."""
    return [
        run(
            70.0 + (GAINS[target] + 0.2 * seed if method == "cicf" else 0),
            method=method,
            target=target,
            seed=seed,
            **over,
        )
        for method in ("erm", "cicf")
        for target in PACS
        for seed in range(seeds)
    ]


def drawn(found: list[FoundRun], output: Path) -> list[dict[str, str]]:
    tables = compared(make_tables(found).tables, "erm")
    files = save_differences(tables, output, command="cicf figure differences")
    assert [file.suffix for file in files] == [".pdf", ".svg", ".png", ".csv"]
    assert all(file.stat().st_size > 0 for file in files)
    with files[-1].open() as stream:
        return list(csv.DictReader(stream))


def test_data_are_the_gains_of_every_domain_and_their_mean(tmp_path: Path) -> None:
    rows = {row["column"]: row for row in drawn(runs(3), tmp_path / "figure")}
    assert list(rows) == ["average", *PACS]
    for target, gain in GAINS.items():
        assert float(rows[target]["difference"]) == pytest.approx(gain + 0.2)
        # s = 0.2, t = 4.303 with two degrees of freedom
        reach = 4.3027 * 0.2 / 3**0.5
        assert float(rows[target]["low"]) == pytest.approx(gain + 0.2 - reach, abs=1e-4)
        assert float(rows[target]["high"]) == pytest.approx(gain + 0.2 + reach, abs=1e-4)
    assert float(rows["average"]["difference"]) == pytest.approx(1.2)
    assert rows["average"]["df"] == "8"


def test_bars_are_drawn_from_low_to_high() -> None:
    (table,) = compared(make_tables(runs(3)).tables, "erm")
    assert table.comparison is not None
    (row,) = table.comparison.rows
    panel = Figure().subplots()
    draw_differences(panel, table)
    bars = [each.lines[2][0].get_segments()[0][:, 0].tolist() for each in panel.containers]
    expected = [row.average, *(row.cells[target] for target in PACS)]
    assert bars == [[pytest.approx(each.low), pytest.approx(each.high)] for each in expected]


def test_a_single_seed_has_no_interval(tmp_path: Path) -> None:
    rows = drawn(runs(1), tmp_path / "figure")
    assert {
        (row["low"], row["high"], row["pairs"]) for row in rows if row["column"] != "average"
    } == {("", "", "1")}


def test_networks_have_panels_of_their_own(tmp_path: Path) -> None:
    one = drawn(runs(2), tmp_path / "one")
    both = drawn([*runs(2), *runs(2, model="resnet50")], tmp_path / "both")
    assert [row["model"] for row in both] == ["resnet18"] * len(one) + ["resnet50"] * len(one)


def test_runs_without_a_partner_are_refused(tmp_path: Path) -> None:
    alone = [each for each in runs(2) if each.record.config["method"]["name"] == "erm"]
    with pytest.raises(ResultError, match="no row has a run of the same domain and seed"):
        drawn(alone, tmp_path / "figure")
    assert list(tmp_path.iterdir()) == []


def test_command_draws_what_the_table_compares(tmp_path: Path) -> None:
    for place, each in enumerate(runs(2)):
        write(tmp_path / "runs" / str(place), each)
    ended = run_cli("figure", "differences", tmp_path / "runs", "-o", tmp_path / "figure.png")
    assert ended.code == 0
    names = [f"figure.{ending}" for ending in ("pdf", "svg", "png", "csv")]
    assert ended.out.startswith(f"wrote {', '.join(str(tmp_path / name) for name in names)}\n")
    table = run_cli("table", tmp_path / "runs", "--compare", "erm", "--format", "csv").out
    compared_with = [row for row in csv.DictReader(table.splitlines()) if row["compared_with"]]
    with (tmp_path / "figure.csv").open() as stream:
        drawn_rows = {row["column"]: row["difference"] for row in csv.DictReader(stream)}
    assert len(compared_with) == len(drawn_rows) == 5
    for row in compared_with:
        shown = float(drawn_rows[row["column"]])
        assert shown == pytest.approx(float(row["paired_difference"]))
