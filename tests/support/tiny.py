"""A run small enough to be trained many times, with everything in it that has a state."""

from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor, nn

import cicf
from cicf.core.draw import Draw, Samples
from cicf.data.blocks import Groups
from cicf.data.sampling import Sampling
from cicf.method import About, Given, LossMethod, MethodConfig, cross_entropy
from cicf.models import SplitModel


def dropout_and_norm(num_classes: int) -> nn.Module:
    """Return a network for 8x8 images whose steps depend on random masks and move statistics."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Flatten(),
        nn.Linear(36, num_classes),
    )


class WithStages(nn.Sequential):
    """Says which of its parts put out Z_0 and Z_1."""

    stages = ("2", "5")


def with_stages(num_classes: int) -> nn.Module:
    """Return a network of one's own whose stages are known."""
    return WithStages(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, stride=2),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(36, num_classes),
    )


def write_images(root: Path, *, per_class: int = 12) -> Path:
    """Write three domains of two classes: 8x8 images, brighter on the left or on the right."""
    stream = torch.Generator().manual_seed(0)
    for domain in ("art", "photo", "sketch"):
        for label, name in enumerate(("left", "right")):
            folder = root / domain / name
            folder.mkdir(parents=True)
            for number in range(per_class):
                image = torch.randint(120, (8, 8, 3), generator=stream)
                image[:, 4 * label : 4 * label + 4] += 100
                Image.fromarray(image.to(torch.uint8).numpy()).save(folder / f"{number}.png")
    return root


def config(root: Path, **over: Any) -> cicf.RunConfig:
    """Return a run on these images with momentum, a schedule and clusters that are made anew."""
    values: dict[str, Any] = {
        "data": {"target": "sketch", "validation": 0.25, "image_size": 8},
        "model": {"name": "tests.support.tiny:dropout_and_norm", "cut": "2"},
        "method": {"name": "cicf", "alpha": 0.1, "batch_norm": "batch", "chunk": None},
        "inner": {"size": 12},
        "outer": {"size": 6},
        "clusters": {"source": "network", "every": 1, "per_class": 2},
        "optim": {"lr": 0.05},
        "epochs": 3,
        "log_every": 1,
        "machine": {"checkpoint_every": 2, "device": "cpu"},
    }
    for name, value in over.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    if values["method"]["name"] not in ("cicf", "maml"):
        values["method"] = {"name": values["method"]["name"]}
    return cicf.recipe(str(root), values)


class CountingConfig(MethodConfig):
    """Is plain training that counts its steps, and keeps the count beside its tensors."""

    def build(self, given: Given) -> "Counting":
        return Counting(given.model)


class Counting(LossMethod):
    """Logs how many steps were taken before, and how many it was told are logged."""

    sampling = Sampling()
    count = told = 0

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch)

    def backward(self, draw: Draw) -> dict[str, float | Tensor]:
        self.told += self.is_logged
        return {**super().backward(draw), "count": self.count, "told": self.told}

    def after_step(self) -> None:
        self.count += 1

    def get_extra_state(self) -> dict[str, int]:
        return {"count": self.count, "told": self.told}

    def set_extra_state(self, state: dict[str, int]) -> None:
        self.count, self.told = state["count"], state["told"]


class TimedConfig(MethodConfig):
    """Is plain training that says that each of its steps has taken a quarter of a second."""

    def build(self, given: Given) -> "Timed":
        return Timed(given.model)


class Timed(LossMethod):
    """Counts time from when it was built, as a clock of its own process would."""

    sampling = Sampling()
    count = 0

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch)

    def after_step(self) -> None:
        self.count += 1

    @property
    def seconds(self) -> dict[str, float]:
        return {"pass 1": 0.25 * self.count}


class ByDomainConfig(MethodConfig):
    """Is plain training on batches with as many images of every domain."""

    about: ClassVar[About] = About(reference="ours", needs_domains=True)

    def build(self, given: Given) -> "ByDomain":
        return ByDomain(given.model)


class ByDomain(LossMethod):
    """Is a loss that couples the samples of a batch: the mean over domains of their means."""

    sampling = Sampling(outer="domains")

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        losses = cross_entropy(model, batch)
        ids = batch.domain.unique()
        return torch.stack([losses[batch.domain == each].mean() for each in ids]).mean()


class GroupedConfig(MethodConfig):
    """Is plain training beside which groups of four images are drawn."""

    def build(self, given: Given) -> "Grouped":
        return Grouped(given)


class Grouped(LossMethod):
    """Logs how many images of the inner batch there are."""

    def __init__(self, given: Given) -> None:
        super().__init__(given.model)
        places = torch.arange(given.num_images // 4 * 4).reshape(-1, 4)
        self.sampling = Sampling(inner="groups", groups=Groups(places))

    def loss(self, model: SplitModel, batch: Samples) -> Tensor:
        return cross_entropy(model, batch)

    def backward(self, draw: Draw) -> dict[str, float | Tensor]:
        assert draw.inner is not None
        return {**super().backward(draw), "count": len(draw.inner.y)}
