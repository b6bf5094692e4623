"""Every command and every piece of code in the README runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.splitlines()
    if line.strip()
]
BENCHMARKS = re.findall(r"`(python benchmarks/[^`]*)`", README)
CODE = [text for kind, text in BLOCKS if kind == "python"]


def test_readme_shows_the_two_commands_and_where_its_numbers_come_from() -> None:
    assert {"make demo", "make test"} <= set(COMMANDS)
    assert len(BENCHMARKS) == 2


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_command_runs(command: str) -> None:
    # The commands that would start this very suite, or a long measurement, are only resolved.
    is_recursive = command in ("make test", "make check", "make bench")
    words = command.split() + (["--dry-run"] if is_recursive else [])
    environment = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}
    found = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, env=environment, check=False
    )
    assert found.returncode == 0, found.stdout + found.stderr
    if command == "make demo":
        rows = re.findall(r"seed \d: ERM ([\d.]+), CICF ([\d.]+)", found.stdout)
        chance = 10
        assert len(rows) == 3
        assert all(float(accuracy) > 3 * chance for row in rows for accuracy in row)


@pytest.mark.slow
@pytest.mark.parametrize("command", BENCHMARKS)
def test_benchmark_runs_on_a_small_batch(command: str) -> None:
    words = [sys.executable, *command.split()[1:], "--inner", "8"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert "constant memory" in found.stdout


@pytest.mark.parametrize("code", CODE)
def test_code_runs_in_the_order_it_is_shown(code: str) -> None:
    """Each block runs after the one before it, after a preamble of a model and data."""
    preamble = (Path(__file__).parent / "readme_preamble.py").read_text()
    program = "\n".join([preamble, *CODE[: CODE.index(code) + 1]])
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert found.returncode == 0, found.stderr
