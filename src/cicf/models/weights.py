"""Weights to start from: ImageNet's from torchvision, a file, or none."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from pathlib import Path
from pickle import UnpicklingError
from typing import NamedTuple
from urllib.error import URLError

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cicf.core import ConfigError, DataError, did_you_mean
from cicf.core.torchvision_cpu import torchvision

NONE, IMAGENET = "none", "imagenet"


class Loaded(NamedTuple):
    """Says which tensors of the network came from the source, and which start new."""

    loaded: tuple[str, ...]
    new: tuple[str, ...]


def load_weights(network: nn.Module, source: str, *, name: str) -> Loaded:
    """Fill the network from `none`, `imagenet`, or a .safetensors or .pth file.

    Every tensor is checked by shape. What comes last may be missing or have another number of
    classes (a new head); a hole in the middle or a tensor of no use is an error. Half precision is
    widened. Nothing is written to the network unless everything fits.
    """
    if source == NONE:
        return Loaded((), tuple(network.state_dict()))
    found = _imagenet(name) if source == IMAGENET else _read(Path(source))
    return _fill(network, found, source)


def _fill(network: nn.Module, found: Mapping[str, Tensor], source: str) -> Loaded:
    state = network.state_dict()
    for extra in found:
        if extra not in state:
            raise DataError(
                f"{source} has a tensor {extra!r} that the network has no place for; "
                f"{did_you_mean(extra, state)}"
            )
    head = _head(network)
    fits = {
        key: value
        for key, value in found.items()
        if key not in head or value.shape == state[key].shape
    }
    for key, value in fits.items():
        if value.shape != state[key].shape:
            raise DataError(
                f"{source} has {key!r} of shape {list(value.shape)}, the network needs "
                f"{list(state[key].shape)}; these are weights of another network"
            )
    names = [key for key in state if not key.endswith("num_batches_tracked")]
    new = [key for key in names if key not in fits]
    if new != names[len(names) - len(new) :]:
        hole = next(key for key in new if names.index(key) < len(names) - len(new))
        raise DataError(
            f"{source} lacks {hole!r}, which the network needs before tensors that the file has; "
            "only the last layers may be missing"
        )
    network.load_state_dict({**state, **{key: value.to(state[key]) for key, value in fits.items()}})
    return Loaded(tuple(fits), tuple(new))


def _head(network: nn.Module) -> set[str]:
    """Return the names of the last layer's tensors, whose number of classes may differ."""
    layers = [
        (name, module)
        for name, module in network.named_modules()
        if isinstance(module, nn.Linear | nn.Conv2d)
    ]
    if not layers:
        return set()
    name, module = layers[-1]
    return {f"{name}.{key}" for key in module.state_dict()}


def _read(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise DataError(f"weights={str(path)!r} is no file; name one, or use 'imagenet' or 'none'")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        return _unwrapped(torch.load(path, map_location="cpu", weights_only=True), path)
    except (SafetensorError, UnpicklingError, RuntimeError, OSError, EOFError, ValueError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataError(
            f"{path} cannot be read as weights ({reason}); pass a .safetensors file, or a .pth "
            "file that holds a state dict and no code"
        ) from error


def _unwrapped(content: object, path: Path) -> Mapping[str, Tensor]:
    """Return the state dict of a checkpoint, without the wrappers that training code leaves."""
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(
        isinstance(value, Tensor) for value in content.values()
    ):
        raise DataError(
            f"{path} holds no state dict; save one by torch.save(model.state_dict(), ...)"
        )
    return {str(key).removeprefix("module."): value for key, value in content.items()}


def _imagenet(name: str) -> Mapping[str, Tensor]:
    models = torchvision("models")
    if name not in models.list_models(module=models):
        raise ConfigError(
            f"weights='imagenet' exist for the models of torchvision, not for {name}; use 'none', "
            "or the path of a file"
        )
    weights = models.get_model_weights(name)
    try:
        chosen = getattr(weights, "IMAGENET1K_V1", weights.DEFAULT)
        # torch says on the output that it downloads, which is for results.
        with redirect_stdout(sys.stderr):
            state: Mapping[str, Tensor] = chosen.get_state_dict(progress=False, check_hash=True)
    except (URLError, OSError) as error:
        raise ConfigError(
            f"weights='imagenet' of {name} have to be downloaded once, and that failed ({error}); "
            "fetch them on another machine with torchvision and pass the path of the file, or use "
            "'none'"
        ) from error
    return {
        key: value
        for key, value in state.items()
        if not key.startswith(("aux1.", "aux2.", "AuxLogits."))
    }
