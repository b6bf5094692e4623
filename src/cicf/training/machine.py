"""Where and how a run is executed; of this, only the device may change its last bits."""

from pathlib import Path
from typing import Literal

import torch
from pydantic import NonNegativeInt, PositiveInt

from cicf.core import ConfigError
from cicf.core.frozen import Frozen
from cicf.data.cache import default_root


class MachineConfig(Frozen):
    """Holds what may differ between two parts of one run, and is no part of its identity."""

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where the network is; `auto` takes a GPU where there is one."""
    num_workers: NonNegativeInt = 0
    """Processes that read and augment images; 0 for one thread beside the steps, which is enough
    where decoded images are kept."""
    checkpoint_every: PositiveInt = 100
    """Steps between checkpoints; one is written after every epoch, too."""
    checks_images: bool = True
    """Whether every image is decoded once before training, so that it does not stop midway."""
    cache: Literal["auto", "off"] = "auto"
    """Whether decoded images are kept on disk, for later steps and runs: `auto`, where there is
    room, or `off`. What a run learns is the same."""
    cache_folder: Path | None = None
    """Where they are kept; None for $CICF_CACHE, or cicf in $XDG_CACHE_HOME or ~/.cache."""
    tensorboard: bool = False
    """Whether to write what metrics.jsonl has for TensorBoard, too."""

    def cache_root(self) -> Path | None:
        """Return the folder for decoded images; None to keep none."""
        return None if self.cache == "off" else self.cache_folder or default_root()

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
