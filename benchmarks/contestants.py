"""The network of Digits-DG and the ways to take one step on it."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

import cicf

ALPHA = 0.1
Batch = tuple[Tensor, Tensor]
Contestant = Callable[[nn.Module, Batch, Batch], None]


def digits_cnn() -> nn.Sequential:
    """Return four blocks of convolution, ReLU and pooling with 64 channels, and a linear head."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for channels in (3, 64, 64, 64):
        layers += [nn.Conv2d(channels, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, 10))


def batch(size: int, seed: int) -> Batch:
    """Return random images and labels."""
    stream = torch.Generator().manual_seed(seed)
    x = torch.randn(size, 3, 32, 32, generator=stream)
    return x, torch.randint(10, (size,), generator=stream)


def erm(model: nn.Module, inner: Batch, outer: Batch) -> None:
    """Take the gradient of the outer batch alone."""
    del inner
    F.cross_entropy(model(outer[0]), outer[1]).backward()


def unrolled(model: nn.Module, inner: Batch, outer: Batch) -> None:
    """Differentiate through the virtual step, keeping its whole graph: what everybody writes."""
    theta: dict[str, Tensor] = dict(model.named_parameters())
    loss = F.cross_entropy(functional_call(model, theta, (inner[0],)), inner[1])
    g = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    moved = {name: theta[name] - ALPHA * slope for name, slope in zip(theta, g, strict=True)}
    loss = F.cross_entropy(functional_call(model, moved, (outer[0],)), outer[1])
    # Not backward(): it would leave a cycle between the graph and the gradients.
    found = torch.autograd.grad(loss, list(theta.values()))
    for parameter, gradient in zip(theta.values(), found, strict=True):
        parameter.grad = gradient


def ours(
    *, order: int = 2, chunk: int | None = None, keeps_graphs: bool | None = None
) -> Contestant:
    """Return the step of this project with these options, built once for a model as in a loop."""
    steps: dict[nn.Module, cicf.Intervention] = {}

    def step(model: nn.Module, inner: Batch, outer: Batch) -> None:
        if model not in steps:
            steps[model] = cicf.Intervention(
                model,
                alpha=ALPHA,
                order=order,  # type: ignore[arg-type]
                chunk=chunk,
                keeps_graphs=keeps_graphs,
                measures_before=False,
            )
        steps[model].backward(inner, outer)

    return step


CONTESTANTS: dict[str, Contestant] = {
    "erm": erm,
    "unrolled": unrolled,
    "whole": ours(),
    "chunks with graphs": ours(chunk=32, keeps_graphs=True),
    "chunks, constant memory": ours(chunk=32),
    "order 1": ours(order=1),
}
EXACT = ("whole", "chunks with graphs", "chunks, constant memory")


def gradient(contestant: Contestant, model: nn.Module, inner: Batch, outer: Batch) -> Tensor:
    """Return the gradient that a contestant leaves, in one vector."""
    model.zero_grad(set_to_none=True)
    contestant(model, inner, outer)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
