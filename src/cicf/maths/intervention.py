"""The paper's intervention as small pure functions, Eq. 4 to 11 and the loop of Algorithm 1.

This is the readable reference. `hypergradient` computes the same gradient in three passes, in
constant memory, and a test ties the two together.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

Parameters = dict[str, Float[Tensor, "..."]]
Head = Callable[[Parameters, Float[Tensor, "m ..."]], Float[Tensor, "m c"]]
"""f: parameters and z = h(x) in, logits out. Eq. 4 to 9 read its softmax, Eq. 10 its logits."""


class Labelled(NamedTuple):
    """Holds z = h(x) and y of a batch."""

    z: Float[Tensor, "m ..."]
    y: Int[Tensor, " m"]


def instance_gradients(f: Head, theta: Parameters, batch: Labelled) -> Parameters:
    """Return g_x̃ of every sample of the batch, stacked along dimension 0 (Eq. 4)."""

    def loss(theta: Parameters, z: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(f(theta, z[None]), y[None])

    gradients: Parameters = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(
        theta, batch.z, batch.y
    )
    return gradients


def intervened_parameters(theta: Parameters, g: Parameters, alpha: float) -> Parameters:
    """Return θ − α g: θ_x̃ for the gradient of one sample (Eq. 4), θ† for g† (Eq. 9)."""
    return {name: value - alpha * g[name] for name, value in theta.items()}


def interventional_prediction(
    f: Head, theta: Parameters, g: Parameters, *, alpha: float, z: Float[Tensor, "m ..."]
) -> Float[Tensor, "m c"]:
    """Return f_{θ − α g}(z) as probabilities: P(Y | Z, x̃) of Eq. 4, P(Y | do(X)) of Eq. 9."""
    return f(intervened_parameters(theta, g, alpha), z).softmax(dim=1)


def exact_intervention(
    f: Head,
    theta: Parameters,
    inner: Labelled,
    *,
    alpha: float,
    z: Float[Tensor, "m ..."],
    p: Float[Tensor, " n"],
) -> Float[Tensor, "m c"]:
    """Return Σ_x̃ f_θx̃(z) P(x̃), the traversal that the method avoids (Eq. 5)."""
    gradients = instance_gradients(f, theta, inner)
    predictions = torch.func.vmap(
        lambda g: interventional_prediction(f, theta, g, alpha=alpha, z=z)
    )(gradients)
    return torch.einsum("nmc,n->mc", predictions, p)


def weighted_gradient(gradients: Parameters, p: Float[Tensor, " n"]) -> Parameters:
    """Return Σ_x̃ g_x̃ P(x̃), the gradient inside Eq. 6."""
    return {name: torch.tensordot(p, value, dims=1) for name, value in gradients.items()}


def taylor_intervention(
    f: Head, theta: Parameters, g: Parameters, *, alpha: float, z: Float[Tensor, "m ..."]
) -> Float[Tensor, "m c"]:
    """Return f_θ(z) − α g ∇_θ f_θ(z) as probabilities (Eq. 6; with g† Eq. 8).

    Linear in α, it leaves [0, 1] when α is large: it explains Eq. 9, it does not replace it.
    """
    found = torch.func.jvp(lambda theta: f(theta, z).softmax(dim=1), (theta,), (g,))
    prediction: Tensor = found[0]
    slope: Tensor = found[1]
    return prediction - alpha * slope


def global_gradient(f: Head, theta: Parameters, inner: Labelled) -> Parameters:
    """Return g†, the mean gradient of the M sampled instances (Eq. 7, 17 and 22).

    The graph is kept: Eq. 10 is differentiated through this step.
    """
    loss = F.cross_entropy(f(theta, inner.z), inner.y)
    gradients = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    return dict(zip(theta, gradients, strict=True))


def cicf_loss(
    f: Head, theta: Parameters, inner: Labelled, outer: Labelled, *, alpha: float
) -> Float[Tensor, ""]:
    """Return L_CICF, the cross-entropy of the outer batch at θ† (Eq. 10 and 23).

    A mean where the paper prints a sum, so that β does not depend on the size of the batch.
    """
    theta_dagger = intervened_parameters(theta, global_gradient(f, theta, inner), alpha)
    return F.cross_entropy(f(theta_dagger, outer.z), outer.y)


def maml_loss(
    f: Head, theta: Parameters, tasks: Sequence[tuple[Labelled, Labelled]], *, alpha: float
) -> Float[Tensor, ""]:
    """Return L_MAML over tasks (meta-train, meta-test) (Eq. 11).

    A mean where the paper prints a sum, for the same reason; one task is L_CICF.
    """
    losses = [cicf_loss(f, theta, train, test, alpha=alpha) for train, test in tasks]
    return torch.stack(losses).mean()


def cicf_update(
    f: Head, theta: Parameters, inner: Labelled, outer: Labelled, *, alpha: float, beta: float
) -> Parameters:
    """Return θ − β ∇_θ L_CICF, lines 6 to 9 of Algorithm 1 for one pair of batches."""
    theta = {name: value.detach().requires_grad_() for name, value in theta.items()}
    loss = cicf_loss(f, theta, inner, outer, alpha=alpha)
    gradients = torch.autograd.grad(loss, list(theta.values()))
    gradient = dict(zip(theta, gradients, strict=True))
    return {
        name: value.detach() for name, value in intervened_parameters(theta, gradient, beta).items()
    }
