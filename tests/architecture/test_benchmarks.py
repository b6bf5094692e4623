"""What makes the benchmarks fair."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.slow
def test_peers_run_without_cicf() -> None:
    program = (
        f"import sys; sys.path.insert(0, {str(BENCHMARKS)!r})\n"
        "from networks import SETTINGS\n"
        "from worker import Contestant\n"
        "for name in SETTINGS:\n"
        "    SETTINGS[name].network()\n"
        "assert Contestant('functional_call', 'digits', 'Z_0', 4, 2).step()['seconds'] > 0\n"
        "assert not [name for name in sys.modules if name.split('.')[0] == 'cicf']\n"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert found.returncode == 0, found.stderr


TWO = ["--settings", "digits", "--contestants", "functional_call", "constant memory"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "few"),
    [
        ("step", [*TWO, "--inner", "8", "--cuts", "input", "--allocators", "own"]),
        # Measures memory and clustering by the means of their own benchmarks.
        ("scaling", ["--sizes", "8", "--numbers", "100", "200", "--contestants", "default"]),
        ("methods", ["--methods", "erm"]),
    ],
)
def test_benchmark_runs_on_little(name: str, few: list[str], tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    words = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", "--json", str(file), *few]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert '"cpu"' in file.read_text()
