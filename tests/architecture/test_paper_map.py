"""The map from the paper to the code is complete, and what it names exists."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]
    for line in (ROOT / "docs" / "paper-map.md").read_text().splitlines()
    if re.match(r"\| (\d+|Alg\.|E|N_k|Cosines|Criterion)[ ,]", line)
]


def test_every_equation_has_a_row() -> None:
    numbers = {int(row[0]) for row in ROWS if row[0].isdigit()}
    assert numbers == set(range(1, 30))


def test_every_line_of_the_algorithm_has_a_row() -> None:
    lines = {
        int(n) for row in ROWS if row[0].startswith("Alg.") for n in re.findall(r"\d+", row[0])[1:]
    }
    assert lines == set(range(1, 11))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_functions_of_the_row_exist(row: list[str]) -> None:
    names = re.findall(r"`([\w.]+)`", row[2])
    assert names
    for name in names:
        module, _, attribute = name.rpartition(".")
        value = importlib.import_module(f"cicf.{module}" if module else "cicf")
        assert hasattr(value, attribute), name


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_tests_of_the_row_exist(row: list[str]) -> None:
    found = re.findall(r"`(\w[\w/]*\.py)::(test_\w+)`", row[3])
    assert found
    for path, name in found:
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(), f"{path}::{name}"
