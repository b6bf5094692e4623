"""Everything a run needs to go on exactly, written whole or not at all."""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from cicf.core.files import new_folder, replacing

State = dict[str, Any]  # Any: what optimisers, schedules and methods keep is theirs
WEIGHTS, STATE = "weights.safetensors", "state.pt"


class Saved(NamedTuple):
    """Holds a checkpoint: tensors of model and method, and everything else."""

    step: int
    weights: dict[str, Tensor]
    state: State


class Checkpoints:
    """Keeps the newest checkpoint of a run in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, step: int, weights: dict[str, Tensor], state: State) -> None:
        """Write the checkpoint after a step; older ones go only when it is complete."""
        older = self._complete()
        path = self._folder / f"step-{step:09d}"
        if path in older:
            return
        with new_folder(path) as temporary:
            save_weights(temporary / WEIGHTS, weights)
            torch.save(state, temporary / STATE)
        for each in older:
            shutil.rmtree(each)

    def newest(self) -> Saved | None:
        """Return the newest checkpoint; None where there is none."""
        complete = self._complete()
        if not complete:
            return None
        path = complete[-1]
        return Saved(
            int(path.name.removeprefix("step-")),
            load_file(path / WEIGHTS),
            torch.load(path / STATE, map_location="cpu", weights_only=True),
        )

    def newest_step(self) -> int | None:
        """Return the step of the newest checkpoint, without reading it."""
        complete = self._complete()
        return int(complete[-1].name.removeprefix("step-")) if complete else None

    def clear(self) -> None:
        """Remove all checkpoints, once the run has ended."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _complete(self) -> list[Path]:
        # A folder gets this name only when everything is in it.
        return sorted(self._folder.glob("step-*"))


def save_weights(
    path: Path, weights: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    """Write tensors as safetensors, whole or not at all; tensors that share memory are copied."""
    own = {name: value.detach().cpu().clone().contiguous() for name, value in weights.items()}
    with replacing(path) as temporary:
        save_file(own, temporary, metadata=metadata)
