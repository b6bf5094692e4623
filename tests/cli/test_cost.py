"""`cicf cost`: what runs took, in words, as JSON and as a figure."""

import json
from pathlib import Path

from tests.support.records import run, write
from tests.support.runs import run_cli

SECONDS = {"clustering": 4.8, "data": 5.2, "steps": 80.0, "evaluation": 10.0, "pass 1": 60.0}


def test_a_run_beside_erm_is_shown_with_shares_ratios_and_memory(tmp_path: Path) -> None:
    write(tmp_path, run(70.0, method="cicf", seconds=SECONDS, peak_memory=3 << 30))
    write(tmp_path, run(60.0, seconds={"steps": 25.0}, peak_memory=1 << 30))
    ended = run_cli("cost", tmp_path)
    assert ended.code == 0, ended.err
    for said in ("4.8 s, 4.8 %", "60 s, 60.0 %", "20 s, 20.0 %", "4.00", "3.00 GiB", "20 s", "5 s"):
        assert said in ended.out
    assert "clustering takes 164 of 3432 seconds, 4.8 %" in ended.out


def test_many_runs_are_printed_a_few_beside_each_other(tmp_path: Path) -> None:
    for seed in range(6):
        write(tmp_path, run(60.0, seed=seed))
    ended = run_cli("cost", tmp_path)
    assert ended.out.count("cost, pacs, resnet18, 224 pixels") == 2


def test_json_and_figure(tmp_path: Path) -> None:
    write(tmp_path / "runs", run(70.0, method="cicf", seconds=SECONDS))
    write(tmp_path / "runs", run(70.0, method="cicf", fingerprint="other", path="other"))
    ended = run_cli("cost", tmp_path / "runs", "--json", "-o", tmp_path / "cost")
    tables = json.loads(ended.out)
    assert len(tables) == 2
    assert tables[0]["costs"][0]["clustering_percent"] == 4.8
    assert tables[0]["costs"][0]["seconds"]["rest of the step"] == 20
    assert (tmp_path / "cost.png").exists()


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    assert run_cli("cost", tmp_path / "nowhere").code == 2
    write(tmp_path, run(70.0))
    ended = run_cli("cost", tmp_path, "-o", next(tmp_path.iterdir()) / "figure")
    assert ended.code == 2
    assert "lies in the folder of a run" in ended.err
