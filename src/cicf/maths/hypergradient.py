"""The exact gradient of L_CICF in three passes, in constant memory when the batches are cut.

With L̃ the loss of the inner batch, L that of the outer batch, θ† = θ − α g† and g† = ∇_θ L̃:

    pass 1   g† = ∇_θ L̃(θ, φ)
    pass 2   v = ∇_θ† L(θ†, φ),  u = ∇_φ L(θ†, φ)
    pass 3   c = ∇ ⟨g†(θ, φ), v⟩  with respect to θ and to φ
    order 2  dL/dθ = v − α c_θ,  dL/dφ = u − α c_φ          order 1 leaves pass 3 out

This is what unrolled autograd gives for `intervention.cicf_loss`, without its graph.
"""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.utils import get_total_norm

from cicf.core.replay import RandomState
from cicf.maths.convolution import channels_last
from cicf.maths.intervention import Parameters
from cicf.maths.shares import Derivative, Gradients, Piece, Setting, Side, derive, total
from cicf.maths.unread import unread


class Lengths(NamedTuple):
    """Holds the lengths of what a gradient was made of, which are kept, while g†, v and c are not.

    `g_reaches` says whether any parameter has an entry in g†; `c` is 0 at order 1.
    """

    g: Float[Tensor, ""]
    v: Float[Tensor, ""]
    c: Float[Tensor, ""]
    g_times_v: Float[Tensor, ""]
    g_reaches: bool


class Hypergradient(NamedTuple):
    """Holds the gradient of L_CICF for θ and φ, and what is to be known of how it was made."""

    theta: Gradients
    phi: Gradients
    alpha: float
    inner_loss: Float[Tensor, ""]
    outer_loss: Float[Tensor, ""]
    outer_loss_before: Float[Tensor, ""]
    lengths: Lengths
    is_per_sample: bool


def hypergradient(
    inner: Side,
    outer: Side,
    *,
    theta: Parameters,
    phi: Parameters,
    alpha: float,
    order: int,
    setting: Setting,
    before: Side | None = None,
    max_step_ratio: float = math.inf,
) -> Hypergradient:
    """Return the gradient of L_CICF at the leaves (θ, φ), α lowered to what the ratio allows.

    With α = 0 it is the outer batch's own gradient, to the bit and with the same random draws. The
    loss of `before` at θ is measured with the draws of pass 2, for which it costs one more forward.
    """
    start = setting.random.capture()
    has_curvature = order == 2 and alpha != 0
    with setting.timed("pass 1"):
        step = VirtualStep(inner, theta, phi, setting=setting, has_curvature=has_curvature)
    alpha = bounded_alpha(alpha, step.g, theta, max_step_ratio=max_step_ratio)
    if alpha == 0:
        setting.random.restore(start)
    loss_before = step.loss.new_full((), torch.nan)
    if before is not None:
        with setting.random.unchanged(), setting.timed("loss at θ"):
            loss_before = mean_loss(before, theta, phi, setting=setting)
    with setting.timed("pass 2"):
        after = gradient(outer, moved(theta, step.g, alpha), phi, setting=setting)
    v = after.gradients[: len(theta)]
    lengths = _lengths(step.g, v)
    step.forget()
    c: Gradients = [None] * len(after.gradients)
    if has_curvature:
        with setting.timed("pass 3"):
            c = step.curvature(v)
    result = [_minus(a, b, alpha) for a, b in zip(after.gradients, c, strict=True)]
    return Hypergradient(
        theta=result[: len(theta)],
        phi=result[len(theta) :],
        alpha=alpha,
        inner_loss=step.loss,
        outer_loss=after.loss,
        outer_loss_before=loss_before,
        lengths=lengths._replace(c=norm(c)),
        is_per_sample=step.is_per_sample and after.is_per_sample,
    )


class VirtualStep:
    """Is pass 1 when constructed (`loss` is L̃, `g` is g†, Eq. 7) and pass 3 when asked, once."""

    def __init__(
        self,
        inner: Side,
        theta: Parameters,
        phi: Parameters,
        *,
        setting: Setting,
        has_curvature: bool,
    ) -> None:
        self._inner, self._setting = inner, setting
        self._parameters, self._theta = {**theta, **phi}, list(theta.values())
        # A graph serves both passes only where both give its samples the same weights.
        is_part = any(piece.weights is not None for piece in inner.pieces)
        self._keeps_graphs = has_curvature and setting.keeps_graphs and not is_part
        self._graphs: list[Gradients] = []
        self._states: list[RandomState] = []
        shares = map(self._first, inner.pieces)
        self.loss, self.g, self.is_per_sample = total(shares, self._theta, setting.ranks)

    def forget(self) -> None:
        """Let go of g†, which is as large as the model and has no part in pass 3."""
        self.g = []

    def curvature(self, v: Gradients) -> Gradients:
        """Return c = ∇⟨g†, v⟩ for θ, then φ, from pass 1's graphs or by replaying its forwards.

        A replay draws the same random numbers, and leaves the random state as it found it.
        """
        pieces = zip(self._inner.pieces, self._states, strict=True)
        shares = (self._second(piece, state, v) for piece, state in pieces if piece.is_curved)
        with self._setting.random.unchanged():
            return total(shares, list(self._parameters.values()), self._setting.ranks).gradients

    def _first(self, piece: Piece) -> Derivative:
        self._states.append(self._setting.random.capture())
        then = partial(
            derive, wrt=self._theta, side=self._inner, piece=piece, keeps_graph=self._keeps_graphs
        )
        share = self._inner.loss(self._parameters, piece.batch, then)
        if self._keeps_graphs:
            self._inspect(share.gradients)
            self._graphs.append(share.gradients)
        return share._replace(gradients=[_detached(value) for value in share.gradients])

    def _second(self, piece: Piece, state: RandomState, v: Gradients) -> Derivative:
        everything = list(self._parameters.values())
        if self._keeps_graphs:
            # Taken off the list, so that each graph is freed before the next is walked.
            g = self._graphs.pop(0)

            def walk(_: Tensor) -> Derivative:
                return Derivative(self.loss, _pull_back(g, v, everything), self.is_per_sample)

            return self._inner.loss(self._parameters, None, walk)

        def then(loss: Tensor) -> Derivative:
            weighted = loss if piece.weights is None else loss * piece.weights.to(loss)
            with unread(self._theta):
                share = derive(
                    weighted, self._theta, side=self._inner, piece=piece, keeps_graph=True
                )
            self._inspect(share.gradients)
            return share._replace(gradients=_pull_back(share.gradients, v, everything))

        self._setting.random.restore(state)
        return self._inner.loss(self._parameters, piece.batch, then)

    def _inspect(self, g: Gradients) -> None:
        if self._setting.inspect is not None:
            self._setting.inspect(g)


def gradient(side: Side, theta: Parameters, phi: Parameters, *, setting: Setting) -> Derivative:
    """Return the mean loss of a batch and its gradient for θ, then φ; at θ† this is pass 2."""
    parameters = {**theta, **phi}
    return _evaluated(side, parameters, list(parameters.values()), setting)


def mean_loss(
    side: Side, theta: Parameters, phi: Parameters, *, setting: Setting
) -> Float[Tensor, ""]:
    """Return the mean loss of a batch."""
    return _evaluated(side, {**theta, **phi}, [], setting).loss


def moved(theta: Parameters, g: Gradients, alpha: float) -> Parameters:
    """Return θ† = θ − α g† as new leaves (Eq. 9); a parameter that g† does not reach stays."""
    pairs = zip(theta.items(), g, strict=True)
    return leaves(
        {
            name: value
            if slope is None or alpha == 0
            else torch.sub(value.detach(), slope, alpha=alpha)
            for (name, value), slope in pairs
        }
    )


def bounded_alpha(alpha: float, g: Gradients, theta: Parameters, *, max_step_ratio: float) -> float:
    """Return the largest α' ≤ α with ‖α' g†‖ ≤ `max_step_ratio` ‖θ‖; it is never differentiated."""
    if math.isinf(max_step_ratio) or alpha == 0:
        return alpha
    size = float(norm(g))
    return alpha if size == 0 else min(alpha, max_step_ratio * float(norm(theta.values())) / size)


def norm(values: Iterable[Tensor | None]) -> Float[Tensor, ""]:
    """Return the Euclidean norm of all values together, None standing for zero."""
    return get_total_norm([value.detach() for value in values if value is not None])


def leaves(parameters: Parameters) -> Parameters:
    """Return the same values as leaves of a graph of their own."""
    return {name: value.detach().requires_grad_() for name, value in parameters.items()}


def _lengths(g: Gradients, v: Gradients) -> Lengths:
    of_g, of_v = norm(g), norm(v)
    pairs = [(a, b) for a, b in zip(g, v, strict=True) if a is not None and b is not None]
    products = [torch.dot(_flat(a), _flat(b)) for a, b in pairs]
    product = torch.stack(products).sum() if products else torch.zeros_like(of_g)
    is_reached = any(value is not None for value in g)
    return Lengths(of_g, of_v, torch.zeros_like(of_v), product, is_reached)


def _flat(value: Tensor) -> Float[Tensor, " n"]:
    """Return the numbers in one row, of kernels in the order in which they lie, channels last.

    Both of a pair lie alike, so that nothing large is made on the way.
    """
    return (channels_last(value).permute(0, 2, 3, 1) if value.ndim == 4 else value).reshape(-1)


def _evaluated(
    side: Side, parameters: Parameters, wrt: Sequence[Tensor], setting: Setting
) -> Derivative:
    shares = (
        side.loss(parameters, piece.batch, partial(derive, wrt=wrt, side=side, piece=piece))
        for piece in side.pieces
    )
    return total(shares, wrt, setting.ranks)


def _pull_back(g: Gradients, v: Gradients, wrt: Sequence[Tensor]) -> Gradients:
    """Return ∇⟨g, v⟩ with respect to `wrt`; a gradient that is constant contributes nothing."""
    pairs = [
        (slope, direction)
        for slope, direction in zip(g, v, strict=True)
        if slope is not None and direction is not None and slope.requires_grad
    ]
    if not pairs:
        return [None] * len(wrt)
    slopes, directions = zip(*pairs, strict=True)
    return list(torch.autograd.grad(slopes, wrt, directions, allow_unused=True))


def _detached(value: Tensor | None) -> Tensor | None:
    return None if value is None else value.detach()


def _minus(a: Tensor | None, b: Tensor | None, alpha: float) -> Tensor | None:
    """Return a − α b, None standing for zero."""
    if b is None:
        return a
    return -alpha * b if a is None else torch.sub(a, b, alpha=alpha)
