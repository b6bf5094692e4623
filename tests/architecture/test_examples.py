"""Each example is short and runs; those that the README names are run by its tests."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.support.methods import built, layout, pictures, samples
from tests.support.runs import SIZE, TINY

from cicf.config import method_kind
from cicf.method import LossMethod
from cicf.results import RunFolder

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_is_short(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 60


@pytest.mark.slow
def test_a_method_of_ones_own_stands_beside_others_in_a_table(tmp_path: Path) -> None:
    words = [sys.executable, str(ROOT / "examples" / "03_own_method.py"), "--epochs", "1"]
    # Further options are those of `cicf bench`; a small network on small images ends soon.
    words += ["--out", str(tmp_path / "runs"), "--set", f"model.name={TINY}"]
    words += ["--set", f"data.image_size={SIZE}"]
    found = subprocess.run(
        words,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    for label in ("ERM", "CICF", "03_own_method:LabelSmoothingConfig"):
        assert label in "".join(found.stdout.split()), found.stdout
    records = [RunFolder(each.parent).record() for each in tmp_path.rglob("result.json")]
    methods = {str(record.config["method"]["name"]): record for record in records}
    assert len(methods) == 3
    own = methods["03_own_method:LabelSmoothingConfig"].config["method"]
    assert own == {
        "name": "03_own_method:LabelSmoothingConfig",
        "deploy": "theta",
        "smoothing": 0.2,
    }


@pytest.mark.usefixtures("float64")
def test_the_method_of_ones_own_mixes_labels_with_the_uniform_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    config = method_kind("03_own_method:LabelSmoothingConfig").model_validate(
        {"name": "own", "smoothing": 0.2}
    )
    data = pictures(2)
    method = built(config, layout(), data)
    assert isinstance(method, LossMethod)
    batch = samples(data)
    logp = method.model(batch.x).log_softmax(dim=1)
    target = 0.8 * torch.eye(3)[batch.y] + 0.2 / 3
    expected = -(target * logp).sum(dim=1)
    torch.testing.assert_close(method.loss(method.model, batch), expected)
