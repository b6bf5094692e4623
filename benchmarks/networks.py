"""The networks and batches that the contestants step on; nothing of cicf is imported here."""

import importlib.util
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]
_TORCHVISION = Path(__file__).parents[1] / "src" / "cicf" / "core" / "torchvision_cpu.py"


@dataclass(frozen=True)
class Setting:
    """Is a network with images of `side` pixels, and M and M^l samples a step.

    `checked` are the sizes at which gradients are compared with float64, `chunk` is that of the
    step in constant memory, and `before` names the modules before Z_0.
    """

    title: str
    build: Callable[[], nn.Module]
    before: tuple[str, ...]
    side: int
    inner: int
    outer: int
    checked: tuple[int, int]
    chunk: int
    num_classes: int = 7
    alpha: float = 0.1

    def network(self) -> nn.Module:
        """Return the network with the same new weights each time, norms and dropout frozen."""
        torch.manual_seed(0)
        network = self.build()
        norms = [module for module in network.modules() if isinstance(module, nn.BatchNorm2d)]
        for norm in norms:
            norm.momentum = 1.0
        if norms:
            # Frozen norms that never saw a batch would not normalise anything.
            with torch.no_grad():
                network(self.batch(32, seed=0)[0])
        return network.eval()

    def batch(self, size: int, *, seed: int) -> Batch:
        """Return random images and labels."""
        stream = torch.Generator().manual_seed(seed)
        x = torch.randn(size, 3, self.side, self.side, generator=stream)
        return x, torch.randint(self.num_classes, (size,), generator=stream)

    def h(self, cut: str) -> tuple[str, ...]:
        """Return the names of the modules before Z."""
        return self.before if cut == "Z_0" else ()


def digits_cnn() -> nn.Module:
    """Return four blocks of convolution, ReLU and pooling with 64 channels, and a linear head."""
    blocks = OrderedDict(
        (
            f"block{i}",
            nn.Sequential(nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        )
        for i, channels in enumerate((3, 64, 64, 64), start=1)
    )
    for module in nn.ModuleDict(blocks).modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return nn.Sequential(
        OrderedDict([*blocks.items(), ("flatten", nn.Flatten()), ("head", nn.Linear(256, 10))])
    )


def of_torchvision(name: str, num_classes: int) -> Callable[[], nn.Module]:
    """Return a builder of one of torchvision's classifiers."""

    def build() -> nn.Module:
        models = _torchvision_cpu().torchvision("models")
        network: nn.Module = models.get_model(name, num_classes=num_classes)
        return network

    return build


def _torchvision_cpu() -> ModuleType:
    """Return the module by its file: to import it by name would import cicf."""
    spec = importlib.util.spec_from_file_location("torchvision_cpu", _TORCHVISION)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SETTINGS = {
    "digits": Setting(
        "Digits CNN, 32 pixels",
        digits_cnn,
        before=("block1",),
        side=32,
        inner=256,
        outer=84,
        checked=(80, 21),
        chunk=32,
        num_classes=10,
    ),
    "resnet18": Setting(
        "ResNet-18, 64 pixels, norms frozen",
        of_torchvision("resnet18", 7),
        before=("conv1", "bn1"),
        side=64,
        inner=256,
        outer=84,
        checked=(20, 7),
        chunk=86,
    ),
    "alexnet": Setting(
        "AlexNet, 128 pixels, without dropout",
        of_torchvision("alexnet", 7),
        before=("features.0",),
        side=128,
        inner=64,
        outer=21,
        checked=(20, 6),
        chunk=32,
    ),
}
