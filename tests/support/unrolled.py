"""The step by unrolled autograd on `functional_call`: an independent second derivation."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

Loss = Callable[[nn.Module, object], Tensor]


class Root(nn.Module):
    """Calls a loss on a model, so that `functional_call` covers both."""

    def __init__(self, model: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, batch: object) -> Tensor:
        return self.loss(self.model, batch)


def unrolled_gradients(
    model: nn.Module,
    inner: object,
    outer: object,
    *,
    loss: Loss,
    alpha: float,
    h: Sequence[str] = (),
    order: int = 2,
) -> dict[str, Tensor | None]:
    """Return dL_CICF for every trainable parameter, by differentiating through the inner step."""
    root = Root(model, loss)
    trainable = {n: p for n, p in root.named_parameters() if p.requires_grad}
    theta = {n: p for n, p in trainable.items() if not _is_before(n, h)}
    buffers = {n: b.clone() for n, b in root.named_buffers()}
    inner_loss = functional_call(root, {**trainable, **buffers}, (inner,)).mean()
    g = torch.autograd.grad(
        inner_loss, list(theta.values()), create_graph=order == 2, allow_unused=True
    )
    moved = dict(trainable)
    for (name, value), slope in zip(theta.items(), g, strict=True):
        moved[name] = value if slope is None else value - alpha * slope
    buffers = {n: b.clone() for n, b in root.named_buffers()}
    outer_loss = functional_call(root, {**moved, **buffers}, (outer,)).mean()
    found = torch.autograd.grad(outer_loss, list(trainable.values()), allow_unused=True)
    return {n.removeprefix("model."): d for n, d in zip(trainable, found, strict=True)}


def stepped_gradients(model: nn.Module) -> dict[str, Tensor | None]:
    """Return what a step left in `.grad`."""
    return {n: p.grad for n, p in model.named_parameters() if p.requires_grad}


def distance(a: dict[str, Tensor | None], b: dict[str, Tensor | None]) -> float:
    """Return the largest relative difference of two gradients; None must meet None.

    Relative to the tensor's largest entry, or to 1e-4 of the whole gradient's where a tensor is 0
    but for rounding (a bias before batch norm).
    """
    assert a.keys() == b.keys()
    largest = max(float(y.abs().max()) for y in b.values() if y is not None)
    assert largest > 0
    worst = 0.0
    for name, x in a.items():
        y = b[name]
        assert (x is None) == (y is None), f"{name}: {x} against {y}"
        if x is not None and y is not None:
            worst = max(
                worst, float((x - y).abs().max()) / max(float(y.abs().max()), 1e-4 * largest)
            )
    return worst


def _is_before(name: str, h: Sequence[str]) -> bool:
    return any(name == f"model.{p}" or name.startswith(f"model.{p}.") for p in h)
