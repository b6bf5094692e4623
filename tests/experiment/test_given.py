"""What a method is told about the run that it is built for."""

from pathlib import Path

import pytest
import torch
from tests.support.tiny import config, write_images

from cicf.core.draw import Samples
from cicf.data.transforms import HALF, IMAGENET
from cicf.experiment.build import make_plan
from cicf.experiment.data import load_data
from cicf.methods import Fact


@pytest.mark.parametrize(("normalise", "numbers"), [("imagenet", IMAGENET), ("half", HALF)])
def test_a_method_knows_which_values_are_black_and_white(
    normalise: str, numbers: tuple[tuple[float, ...], tuple[float, ...]], tmp_path: Path
) -> None:
    run = config(
        write_images(tmp_path / "images"), method={"name": "fact"}, data={"normalise": normalise}
    )
    method = make_plan(run, load_data(run.data), "").method
    assert isinstance(method, Fact)
    mean, std = (torch.tensor(each)[:, None, None] for each in numbers)
    x = ((torch.rand(6, 3, 8, 8) < 0.5).to(torch.float32) - mean) / std
    none = torch.zeros(6, dtype=torch.int64)
    found = method.mixed(Samples(x, none, none, none))
    # Mixes of black and white images overshoot, and are cut off at black and at white.
    black, white = ((value - mean) / std for value in (0.0, 1.0))
    torch.testing.assert_close(found.amin(dim=(0, 2, 3)), black.flatten())
    torch.testing.assert_close(found.amax(dim=(0, 2, 3)), white.flatten())
