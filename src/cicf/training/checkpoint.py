"""Everything a run needs to go on exactly, written whole or not at all."""

import shutil
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from cicf.core import ConfigError, DataError
from cicf.core.files import new_folder, replacing

State = dict[str, Any]  # Any: what optimisers, schedules and methods keep is theirs
WEIGHTS, STATE = "weights.safetensors", "state.pt"
_UNREADABLE = (
    SafetensorError,
    UnpicklingError,
    RuntimeError,
    OSError,
    EOFError,
    KeyError,
    TypeError,
)


class Saved(NamedTuple):
    """Holds a checkpoint: tensors of model and method, and everything else."""

    step: int
    weights: State
    state: State

    def under(self, prefix: str) -> State:
        """Return the tensors whose names begin with a prefix, without it."""
        return {
            name.removeprefix(prefix): value
            for name, value in self.weights.items()
            if name.startswith(prefix)
        }


class Checkpoints:
    """Keeps the newest checkpoint of a run in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def save(self, step: int, weights: State, state: State) -> None:
        """Write the checkpoint after a step; older ones go only when it is complete.

        What a module keeps beside its tensors goes to the state.
        """
        older = self._complete()
        path = self._folder / f"step-{step:09d}"
        if path in older:
            return
        with new_folder(path) as temporary:
            save_weights(temporary / WEIGHTS, weights)
            extra = {k: value for k, value in weights.items() if not isinstance(value, Tensor)}
            torch.save({**state, "extra": extra}, temporary / STATE)
        for each in older:
            shutil.rmtree(each)

    def newest(self) -> Saved | None:
        """Return the newest checkpoint; None where there is none."""
        complete = self._complete()
        if not complete:
            return None
        path = complete[-1]
        try:
            state: State = torch.load(path / STATE, map_location="cpu", weights_only=True)
            weights: State = {**load_file(path / WEIGHTS), **state["extra"]}
        except _UNREADABLE as error:
            raise DataError(
                f"{path} cannot be read ({' '.join(str(error).split()):.100}); remove the folder "
                "of the run and start anew"
            ) from error
        return Saved(int(path.name.removeprefix("step-")), weights, state)

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


def save_weights(path: Path, weights: State, metadata: dict[str, str] | None = None) -> None:
    """Write tensors as safetensors, whole or not at all; tensors that share memory are copied."""
    own = {
        name: value.detach().cpu().clone().contiguous()
        for name, value in weights.items()
        if isinstance(value, Tensor)
    }
    with replacing(path) as temporary:
        save_file(own, temporary, metadata=metadata)


def check_resumable(state: State, fingerprint: str, device: str) -> None:
    """Refuse to go on with other images or on another device: it would not be the same run."""
    if state["fingerprint"] != fingerprint:
        raise ConfigError(
            "the images have changed since the run was interrupted; bring them back, or start anew "
            "in another folder"
        )
    if state["device"] != device:
        raise ConfigError(
            f"the run was begun on {state['device']!r} and goes on exactly only there, not on "
            f"{device!r}; pass --device {state['device']}, or start anew in another folder"
        )
