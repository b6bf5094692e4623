"""One step as others take it: plain torch, `higher` and `torchopt`; nothing of cicf is imported.

Each writes to `.grad`. The parameters of the modules `h`, those before Z, take no virtual step but
get their gradient. Each is written in the way of its library that is fastest for one inner step.
"""

import importlib.util
from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from networks import Batch
from torch import Tensor, nn
from torch.func import functional_call

Step = Callable[[nn.Module, Sequence[str], float, Batch, Batch], None]
"""model, h, α, inner, outer → None"""


def erm(
    model: nn.Module, h: Sequence[str], alpha: float, inner: Batch | None, outer: Batch
) -> None:
    """Take the gradient of the outer batch alone."""
    del h, alpha, inner
    F.cross_entropy(model(outer[0]), outer[1]).backward()


def unrolled(model: nn.Module, h: Sequence[str], alpha: float, inner: Batch, outer: Batch) -> None:
    """Differentiate through the virtual step, keeping its whole graph: what everybody writes."""
    theta = after(model, h)
    loss = F.cross_entropy(functional_call(model, theta, (inner[0],)), inner[1])
    g = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    moved = {name: theta[name] - alpha * slope for name, slope in zip(theta, g, strict=True)}
    loss = F.cross_entropy(functional_call(model, moved, (outer[0],)), outer[1])
    _write(model, loss)


def first_order(
    model: nn.Module, h: Sequence[str], alpha: float, inner: Batch, outer: Batch
) -> None:
    """Take the gradient at θ† as that at θ: the reference for order 1."""
    theta = after(model, h)
    loss = F.cross_entropy(model(inner[0]), inner[1])
    g = torch.autograd.grad(loss, list(theta.values()))
    moved = {name: theta[name] - alpha * slope for name, slope in zip(theta, g, strict=True)}
    _write(model, F.cross_entropy(functional_call(model, moved, (outer[0],)), outer[1]))


def with_higher(
    model: nn.Module, h: Sequence[str], alpha: float, inner: Batch, outer: Batch
) -> None:
    """Take the virtual step with the differentiable optimiser of `higher`."""
    import higher

    optimizer = torch.optim.SGD(after(model, h).values(), lr=alpha)
    with higher.innerloop_ctx(model, optimizer, copy_initial_weights=False) as (moving, virtual):
        virtual.step(F.cross_entropy(moving(inner[0]), inner[1]))
        _write(model, F.cross_entropy(moving(outer[0]), outer[1]))


def with_torchopt(
    model: nn.Module, h: Sequence[str], alpha: float, inner: Batch, outer: Batch
) -> None:
    """Take the virtual step with the functional SGD of `torchopt`."""
    import torchopt

    theta = after(model, h)
    sgd = torchopt.sgd(lr=alpha)
    loss = F.cross_entropy(functional_call(model, theta, (inner[0],)), inner[1])
    g = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    state = sgd.init(theta)
    updates, _ = sgd.update(dict(zip(theta, g, strict=True)), state, inplace=False)
    moved = torchopt.apply_updates(theta, updates, inplace=False)
    _write(model, F.cross_entropy(functional_call(model, moved, (outer[0],)), outer[1]))


PEERS: dict[str, Step] = {
    "functional_call": unrolled,
    "higher": with_higher,
    "torchopt": with_torchopt,
}


def is_installed(name: str) -> bool:
    """Tell whether a peer can run here."""
    return name == "functional_call" or importlib.util.find_spec(name) is not None


def after(model: nn.Module, h: Sequence[str]) -> dict[str, Tensor]:
    """Return θ: the parameters that lie in none of these modules."""
    starts = tuple(f"{module}." for module in h)
    return {name: value for name, value in model.named_parameters() if not name.startswith(starts)}


def _write(model: nn.Module, loss: Tensor) -> None:
    # Not backward(): it would leave a cycle between the graph and the gradients.
    parameters = list(model.parameters())
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
