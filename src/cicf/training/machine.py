"""Where and how a run is executed; of this, only the device may change its last bits."""

from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveInt

from cicf.core import ConfigError
from cicf.core.frozen import Frozen


class MachineConfig(Frozen):
    """Holds what may differ between two parts of one run, and is no part of its identity."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the network is; `auto` takes a GPU where there is one."""
    num_workers: NonNegativeInt = 0
    """Processes that read and augment images; 0 to do it between the steps."""
    checkpoint_every: PositiveInt = 100
    """Steps between checkpoints; one is written after every epoch, too."""
    checks_images: bool = True
    """Whether every image is decoded once before training, so that it does not stop midway."""
    tensorboard: bool = False
    """Whether to write what metrics.jsonl has for TensorBoard, too."""

    def torch_device(self) -> torch.device:
        """Return the device, which must be there."""
        found = torch.accelerator.current_accelerator() if _has_accelerator() else None
        if self.device == "auto":
            return found or torch.device("cpu")
        if self.device != "cpu" and (found is None or found.type != self.device):
            raise ConfigError(
                f"machine.device={self.device!r} is not there: torch finds "
                f"{found.type if found else 'no accelerator'}; use 'auto' or 'cpu'"
            )
        return torch.device(self.device)


def _has_accelerator() -> bool:
    return torch.accelerator.is_available()
