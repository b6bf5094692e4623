"""Methods that leave a trace of their steps in other processes, or fail in the midst of a run."""

import os
import signal
from pathlib import Path

from torch import Tensor

from cicf.core.draw import Draw, Samples
from cicf.data.sampling import Sampling
from cicf.method import Given, LossMethod, MethodConfig, cross_entropy
from cicf.models import SplitModel

TRACE = "CICF_TEST_TRACE"


class TracedConfig(MethodConfig):
    """Is plain training that writes a line to the file named by TRACE after every step."""

    def build(self, given: Given) -> "Traced":
        return Traced(given.model)


class Traced(LossMethod):
    """Appends its process to the file."""

    sampling = Sampling()

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch)

    def after_step(self) -> None:
        with Path(os.environ[TRACE]).open("a") as file:
            file.write(f"{os.getpid()}\n")


class CrashingConfig(MethodConfig):
    """Is plain training that breaks in its third step, while the file named by TRACE is there."""

    def build(self, given: Given) -> "Crashing":
        return Crashing(given.model)


class Crashing(LossMethod):
    """Raises what no user's mistake would."""

    sampling = Sampling()
    count = 0

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch)

    def backward(self, draw: Draw) -> dict[str, float | Tensor]:
        self.count += 1
        if self.count == 3 and Path(os.environ[TRACE]).exists():
            raise RuntimeError("the machine is on fire")
        return dict(super().backward(draw))


class NoisyConfig(MethodConfig):
    """Is plain training beside code that prints, and dies when the file of TRACE is there."""

    def build(self, given: Given) -> "Noisy":
        return Noisy(given.model)


class Noisy(LossMethod):
    """Writes bytes that are no text to the output, below Python."""

    sampling = Sampling()

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch)

    def after_step(self) -> None:
        os.write(1, b"\xff\xfe noise\n")
        if Path(os.environ[TRACE]).exists():
            os.kill(os.getpid(), signal.SIGKILL)
