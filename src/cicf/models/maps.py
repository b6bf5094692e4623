"""Which modules of a network put out maps, and whether all that follows hangs on one of them."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from cicf.core import ConfigError, did_you_mean
from cicf.core.modes import evaluating, outputs_of
from cicf.models.split import SplitModel
from cicf.models.taps import changed, maps_of


def modules_with_maps(model: SplitModel, image_size: int) -> tuple[str, ...]:
    """Return the modules that put out a map of two places or more, in the order they do so.

    A module that runs twice in a forward is left out, since its name does not say which map.
    """
    found = outputs_of(model.network, _images(model, image_size, count=1))
    names = [name for name, _ in found]
    return tuple(
        name
        for name, output in found
        if name and names.count(name) == 1 and isinstance(output, Tensor) and _is_map(output)
    )


def check_maps(names: Iterable[str], known: Iterable[str], *, option: str) -> None:
    """Refuse modules that do not put out a map."""
    known = tuple(known)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{option}={name!r} does not put out one map of two places or more in a forward; "
                f"{did_you_mean(name, known)}"
            )


def is_bottleneck(model: SplitModel, name: str, image_size: int) -> bool:
    """Tell whether the logits follow from what a module puts out, and from nothing else.

    Found by a forward of one image, in which the module puts out the maps of two others.
    """
    x = _images(model, image_size, count=3)
    with evaluating(model), torch.no_grad():
        found, logits = maps_of(model, x[1:], [name])
        try:
            with changed(model, {name: lambda _: found[name]}):
                again: Tensor = model.network(x[:1])
        except (RuntimeError, ValueError, AssertionError):
            return False
    return again.shape == logits.shape and torch.allclose(again, logits, rtol=1e-3, atol=1e-5)


def _images(model: SplitModel, size: int, *, count: int) -> Float[Tensor, "n 3 s s"]:
    like = next(model.parameters())
    values = torch.linspace(-9, 9, count * 3 * size * size, dtype=like.dtype, device=like.device)
    return values.sin().reshape(count, 3, size, size)


def _is_map(output: Tensor) -> bool:
    return output.ndim == 4 and output.shape[2] * output.shape[3] > 1
