"""The paper's networks with their cuts Z_0 … Z_5, any of torchvision's, and one's own."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn

from cicf.core import ConfigError, did_you_mean
from cicf.core.imported import imported
from cicf.core.modes import evaluating
from cicf.core.torchvision_cpu import torchvision
from cicf.models.digits_cnn import DigitsCnn
from cicf.models.split import SplitModel, modules_until

Builder = Callable[[int], nn.Module]
_WITH_AUXILIARY = ("googlenet", "inception_v3")


@dataclass(frozen=True, slots=True)
class Architecture:
    """A network whose stages are known: `stages[i]` are the modules between Z_{i-1} and Z_i."""

    build: Builder
    stages: tuple[tuple[str, ...], ...]
    image_size: int

    @property
    def cuts(self) -> dict[str, tuple[str, ...]]:
        """Return the modules before each cut: `input`, Z_0, Z_1, …"""
        stages = enumerate(accumulate(self.stages))
        return {"input": (), **{f"Z_{i}": names for i, names in stages}}


_RESNET = (
    ("conv1", "bn1", "relu", "maxpool"),
    *((f"layer{i}",) for i in range(1, 5)),
    ("avgpool",),
)
_ALEXNET = (
    ("features.0", "features.1", "features.2"),
    ("features.3", "features.4", "features.5"),
    ("features.6", "features.7"),
    ("features.8", "features.9"),
    ("features.10", "features.11", "features.12"),
    ("avgpool", *(f"classifier.{i}" for i in range(6))),
)


def _of_torchvision(name: str) -> Builder:
    def build(num_classes: int) -> nn.Module:
        network: nn.Module = torchvision("models").get_model(name, num_classes=num_classes)
        return network

    return build


ARCHITECTURES: dict[str, Architecture] = {
    "digits_cnn": Architecture(DigitsCnn, tuple((f"block{i}",) for i in range(1, 5)), 32),
    "resnet18": Architecture(_of_torchvision("resnet18"), _RESNET, 224),
    "resnet50": Architecture(_of_torchvision("resnet50"), _RESNET, 224),
    "alexnet": Architecture(_of_torchvision("alexnet"), _ALEXNET, 224),
}


def build_model(
    name: str, *, num_classes: int, cut: str | None = None, image_size: int | None = None
) -> SplitModel:
    """Return a network with new weights, cut at a stage (`input`, `Z_0`, …) or after a module.

    `name` is one of ours, any classification model of torchvision, or `package.module:builder`, a
    function from the number of classes to a module, whose attribute `stages` may name the modules
    that put out Z_0, Z_1, … for methods that work between them. Without a cut, Z is Z_0 where the
    stages are known, and the input where they are not.
    """
    known = ARCHITECTURES.get(name)
    network = known.build(num_classes) if known else _built(name, num_classes)
    side = image_size or (known.image_size if known else 224)
    image = torch.zeros(1, 3, side, side)
    _check_logits(network, name, image, num_classes)
    cuts = known.cuts if known else {"input": ()}
    cut = cut or ("Z_0" if known else "input")
    before = cuts[cut] if cut in cuts else modules_until(network, cut, image, stages=tuple(cuts))
    stages = [stage[-1] for stage in known.stages] if known else getattr(network, "stages", ())
    return SplitModel(network, cut=cut, before=before, stages=stages)


def _built(name: str, num_classes: int) -> nn.Module:
    builder = _builder(name)
    try:
        network = builder(num_classes)
    except TypeError as error:
        raise ConfigError(
            f"model={name!r} cannot be built for {num_classes} classes ({error}); it must be a "
            "function from the number of classes to a module"
        ) from error
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"model={name!r} builds a {type(network).__name__}; it must build a torch.nn.Module"
        )
    return network


def _builder(name: str) -> Builder:
    if ":" in name:
        return _own_builder(name)
    models = torchvision("models")
    names = models.list_models(module=models)
    if name not in names:
        hint = did_you_mean(name, [*ARCHITECTURES, *names])
        if hint.startswith("choose"):
            hint = f"choose one of {', '.join(ARCHITECTURES)}, or any classifier of torchvision"
        raise ConfigError(f"model={name!r} is not known; {hint}")
    # Auxiliary heads would make the forward return more than the logits.
    options = {"aux_logits": False, "init_weights": True} if name in _WITH_AUXILIARY else {}
    return lambda num_classes: models.get_model(name, num_classes=num_classes, **options)


def _own_builder(name: str) -> Builder:
    builder = imported(name, option="model")
    if not callable(builder):
        raise ConfigError(
            f"model={name!r} is not a function from the number of classes to a module"
        )
    return builder


def _check_logits(network: nn.Module, name: str, image: torch.Tensor, num_classes: int) -> None:
    try:
        with evaluating(network), torch.no_grad():
            found = network(image)
    except (RuntimeError, AssertionError, ValueError) as error:
        raise ConfigError(
            f"model={name!r} cannot take images of {image.shape[-1]} pixels ({error}); "
            "use another image size"
        ) from error
    shape = list(found.shape) if isinstance(found, torch.Tensor) else type(found).__name__
    if shape != [1, num_classes]:
        raise ConfigError(
            f"model={name!r} returns {shape} for one image, but must return logits of shape "
            f"[1, {num_classes}]; choose a classifier"
        )
