"""`cicf table`, from the folders of runs to what is printed and written."""

import json
from pathlib import Path

import pytest
import typer
from tests.support.records import PACS, complete, run, scored, write
from tests.support.runs import run_cli
from typer.testing import CliRunner, Result

from cicf.cli.table import print_tables, table
from cicf.core import ResultError
from cicf.results import RunFolder

app = typer.Typer()
app.command()(table)


def call(*words: object) -> Result:
    """Run the command by itself; errors of ours are the result's exception."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Return a folder with ERM and CICF on all targets of PACS, two seeds each."""
    for method, percent in (("erm", 70.0), ("cicf", 72.0)):
        for each in complete(
            {seed: dict.fromkeys(PACS, percent + seed) for seed in (0, 1)}, method=method
        ):
            write(tmp_path / "runs", each)
    return tmp_path / "runs"


def test_prints_a_table_of_all_runs_below_a_folder(runs: Path) -> None:
    ended = call(runs)
    assert ended.exit_code == 0
    assert ended.stdout.startswith("pacs, resnet18: accuracy in %\n")
    assert "70.5±0.7 (2)" in ended.stdout
    assert ended.stderr == ""


@pytest.mark.parametrize(
    ("format_", "start"),
    [
        ("markdown", "**pacs"),
        ("latex", "% needs"),
        ("csv", "data,"),
        ("json", "{"),
        ("html", "<!DOCTYPE html>"),
    ],
)
def test_prints_the_format_that_is_asked_for(runs: Path, format_: str, start: str) -> None:
    assert call(runs, "--format", format_).stdout.startswith(start)


def test_an_unknown_format_is_refused(runs: Path) -> None:
    ended = call(runs, "--format", "word")
    assert ended.exit_code == 2
    assert "'word' is not one of" in ended.stderr


def test_writes_a_file_instead_of_printing(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "new" / "table.csv"
    ended = call(runs, "--format", "csv", "-o", file)
    assert ended.stdout == f"wrote {file}\n"
    assert file.read_text() == call(runs, "--format", "csv").stdout


def test_names_runs_that_are_not_shown_on_the_error_stream(runs: Path) -> None:
    RunFolder(runs / "begun").begin({})
    ended = call(runs)
    assert ended.exit_code == 0
    assert ended.stderr.startswith(f"not shown: {runs / 'begun'} has no result.json")
    assert "begun" not in ended.stdout


def test_other_commands_print_the_same_table(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print_tables(sorted(runs.iterdir()))
    assert capsys.readouterr().out == call(runs).stdout


def test_compares_with_a_row(runs: Path) -> None:
    assert "ERM+CICF vs ERM" in call(runs, "--compare", "erm").stdout


@pytest.mark.parametrize(
    ("select", "percent"), [("last", 60.0), ("source-val", 70.0), ("oracle", 80.0)]
)
def test_selects_the_epoch(tmp_path: Path, select: str, percent: float) -> None:
    epochs = tuple(scored(i + 1, {"sketch": p}) for i, p in enumerate((80.0, 70.0, 60.0)))
    write(tmp_path, run(0.0, last=epochs[2], best=epochs[1], epochs=epochs))
    found = json.loads(call(tmp_path, "--select", select, "--format", "json").stdout)
    assert found["tables"][0]["rows"][0]["cells"]["sketch"]["mean"] == pytest.approx(percent)


def test_shows_the_parameters_that_are_asked_for(tmp_path: Path) -> None:
    epoch = scored(1, {"sketch": 60.0}, dagger={"sketch": 80.0})
    write(tmp_path, run(0.0, method="cicf", last=epoch, best=epoch, deploy="theta_dagger"))
    assert "60.0" in call(tmp_path, "--parameters", "theta").stdout


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    ended = call(tmp_path)
    assert isinstance(ended.exception, ResultError)
    assert ended.stdout == ""


@pytest.mark.parametrize("words", [("--compare", "nobody"), ("--select", "oracle"), ("nowhere",)])
def test_a_users_mistake_is_one_sentence_and_exit_code_2(
    runs: Path, words: tuple[str, ...]
) -> None:
    ended = run_cli("table", runs, *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("cicf: ")
    assert ended.err.count("\n") == 1


def test_a_refused_comparison_leaves_the_file_as_it_was(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "table.txt"
    file.write_text("before")
    ended = call(runs, "--compare", "nobody", "-o", file)
    assert isinstance(ended.exception, ResultError)
    assert file.read_text() == "before"


def test_result_of_a_run_is_never_written_over(runs: Path) -> None:
    result = next(runs.rglob("result.json"))
    before = result.read_bytes()
    for output in (result, result.parent / "table.txt"):
        ended = run_cli("table", runs, "-o", output)
        assert ended.code == 2
        assert "lies in the folder of a run; name a file elsewhere" in ended.err
    assert result.read_bytes() == before
