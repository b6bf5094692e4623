"""What is promised: a light import, the public names, the layers, and one version."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import cicf

ROOT = Path(__file__).parents[2]


def test_import_loads_nothing_heavy() -> None:
    heavy = {"torch", "torchvision", "sklearn", "numpy", "pydantic", "rich"}
    script = f"import sys, cicf; print(sorted({heavy} & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def test_errors_load_no_torch() -> None:
    script = "import sys; from cicf import ConfigError; print('torch' in sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "False"


def test_public_surface_is_pinned() -> None:
    assert sorted(cicf.__all__) == [
        "AlphaCurve",
        "CicfError",
        "ClassWeightedSampler",
        "Clustering",
        "ConfigError",
        "DataError",
        "Intervention",
        "LoadedRun",
        "RandomSampler",
        "Record",
        "RunConfig",
        "Strata",
        "StratifiedSampler",
        "Terms",
        "cluster_by_class",
        "cluster_dataset",
        "cross_entropy_per_sample",
        "open_run",
        "recipe",
        "suggest_alpha",
        "train",
    ]
    assert set(cicf.__all__) <= set(dir(cicf))
    for name in cicf.__all__:
        assert getattr(cicf, name).__name__ == name


def test_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Intervenion'"):
        _ = cicf.Intervenion


def test_version_lives_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["tool"]["hatch"]["version"]["path"] == "src/cicf/__init__.py"
    assert f"## {cicf.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {cicf.__version__}" in (ROOT / "CITATION.cff").read_text()


def test_every_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(name for extra in extras for name in extra)]
    names = {name.split(">=")[0].split("[")[0].lower() for name in wanted} - {"cicf"}
    pinned = {
        line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().split()
    }
    assert names <= pinned


@pytest.mark.parametrize("path", sorted((ROOT / "src").rglob("*.py")), ids=lambda p: p.stem)
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 300
