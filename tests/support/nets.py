"""Small models, one for each thing that a step can trip over."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

Batch = tuple[Tensor, Tensor]
CLASSES = 3


def images(size: int, seed: int = 0) -> Batch:
    """Return a labelled batch of 3 x 8 x 8 images."""
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 3, 8, 8, generator=stream)
    return x, torch.randint(CLASSES, (size,), generator=stream)


def conv_net() -> nn.Sequential:
    """Return a network with kinks and pooling: stem, act, pool, body, act, flat, head."""
    return _named(
        stem=nn.Conv2d(3, 4, 3, padding=1),
        relu1=nn.ReLU(),
        pool=nn.MaxPool2d(2),
        body=nn.Conv2d(4, 5, 3, padding=1),
        relu2=nn.ReLU(),
        flat=nn.Flatten(),
        head=nn.Linear(80, CLASSES),
    )


def smooth_net() -> nn.Sequential:
    """Return a network without kinks, for finite differences."""
    return _named(
        stem=nn.Conv2d(3, 4, 3, stride=2),
        tanh=nn.Tanh(),
        flat=nn.Flatten(),
        head=nn.Linear(36, CLASSES),
    )


def dropout_net() -> nn.Sequential:
    """Return a network that draws random masks."""
    return _named(
        stem=nn.Conv2d(3, 4, 3, stride=2),
        relu=nn.ReLU(),
        drop1=nn.Dropout(0.3),
        flat=nn.Flatten(),
        drop2=nn.Dropout(0.5),
        head=nn.Linear(36, CLASSES),
    )


def norm_net() -> nn.Sequential:
    """Return a network with batch norm before and after the cut at `stem`."""
    return _named(
        stem=nn.Conv2d(3, 4, 3, padding=1),
        norm1=nn.BatchNorm2d(4),
        relu=nn.ReLU(),
        body=nn.Conv2d(4, 4, 3, stride=2),
        norm2=nn.BatchNorm2d(4),
        flat=nn.Flatten(),
        head=nn.Linear(36, CLASSES),
    )


class TiedNet(nn.Module):
    """Uses one matrix on both sides of the cut, under the names `first` and `last`."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(192, 192, bias=False)
        self.middle = nn.Linear(192, 192)
        self.last = nn.Linear(192, 192)
        self.last.weight = self.first.weight
        self.head = nn.Linear(192, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.first(x.flatten(1)))
        out: Tensor = self.head(torch.tanh(self.last(torch.tanh(self.middle(x)))))
        return out


class AttentionNet(nn.Module):
    """Attends over the rows of an image, by torch's own fused attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(24, 16)
        self.qkv = nn.Linear(16, 48)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x.transpose(1, 2).flatten(2))
        heads = self.qkv(tokens).unflatten(2, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(*heads)
        out: Tensor = self.head((tokens + attended.transpose(1, 2).flatten(2)).mean(dim=1))
        return out


class CheckpointNet(nn.Module):
    """Recomputes its middle during the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(192, 16)
        self.body = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh())
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.stem(x.flatten(1))
        out: Tensor = self.head(checkpoint(self.body, z, use_reentrant=False))
        return out


def _named(**modules: nn.Module) -> nn.Sequential:
    model = nn.Sequential()
    for name, module in modules.items():
        model.add_module(name, module)
    return model
