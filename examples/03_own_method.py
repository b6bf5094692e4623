"""A method of your own beside ERM and CICF, without a change to the package.

`cicf` imports this very file by its name: `--method 03_own_method:LabelSmoothingConfig` works where
it is found, in the folder that you are in or on the PYTHONPATH.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import torch.nn.functional as F
from pydantic import Field
from torch import Tensor

from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.method import Given, LossMethod, MethodConfig
from cicf.models import SplitModel


class LabelSmoothingConfig(MethodConfig):
    """Trains on labels of which a part is spread over all classes."""

    smoothing: float = Field(default=0.1, ge=0, lt=1)
    """The part that is spread."""

    def build(self, given: Given) -> "LabelSmoothing":
        return LabelSmoothing(given.model, self.smoothing)


class LabelSmoothing(LossMethod):
    sampling = Sampling()

    def __init__(self, model: SplitModel, smoothing: float) -> None:
        super().__init__(model)
        self.smoothing = smoothing

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        logits = model(batch.x)
        return F.cross_entropy(logits, batch.y, label_smoothing=self.smoothing, reduction="none")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("runs/own-method"))
    parser.add_argument("--epochs", type=int, default=1)
    options, more = parser.parse_known_args()
    here = Path(__file__)
    own = f"{here.stem}:{LabelSmoothingConfig.__name__}"
    words = ["bench", "demo", "--methods", f"erm,cicf,{own}", "--targets", "blended"]
    words += ["--preset", "cpu", "--out", str(options.out)]
    words += ["--set", f"epochs={options.epochs}", "--set", "method.smoothing=0.2", *more]
    print("cicf", *words, flush=True)
    path = os.pathsep.join([str(here.resolve().parent), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", "from cicf.cli import main; main()", *words]
    sys.exit(
        subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode
    )
