"""The exact gradient of L_CICF in three passes, in constant memory when the batches are cut.

With L̃ the loss of the inner batch, L that of the outer batch, θ† = θ − α g† and g† = ∇_θ L̃:

    pass 1   g† = ∇_θ L̃(θ, φ)
    pass 2   v = ∇_θ† L(θ†, φ),  u = ∇_φ L(θ†, φ)
    pass 3   c = ∇ ⟨g†(θ, φ), v⟩  with respect to θ and to φ
    order 2  dL/dθ = v − α c_θ,  dL/dφ = u − α c_φ          order 1 leaves pass 3 out

This is what unrolled autograd gives for `intervention.cicf_loss`, without its graph.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from cicf.core.replay import RandomState
from cicf.maths.intervention import Parameters
from cicf.maths.moving import along, bounded_alpha, leaves, moved, norm, product
from cicf.maths.shares import (
    Derivative,
    Gradients,
    Piece,
    Setting,
    Side,
    Sums,
    add_share,
    derive,
    total,
)
from cicf.maths.unread import unread

Edges = list[GradientEdge | None]
"""Where the graph of each gradient ends, which is all that differentiating it takes."""


class Lengths(NamedTuple):
    """Holds the lengths of what a gradient was made of, which are kept, while g†, v and c are not.

    `g_times_v` is ⟨g†, v⟩, of the step as it was taken: of (θ − θ†) / α where α is above 0.
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
    of_g, g_reaches = norm(step.g), any(value is not None for value in step.g)
    theta_dagger = step.taken(alpha)
    with setting.timed("pass 2"):
        after = gradient(outer, theta_dagger, phi, setting=setting)
    v = after.gradients[: len(theta)]
    g_times_v = product(step.g, v) if alpha == 0 else along(theta, theta_dagger, v) / alpha
    del theta_dagger
    c: Gradients = [None] * len(after.gradients)
    if has_curvature:
        with setting.timed("pass 3"):
            c = step.curvature(v)
    lengths = Lengths(of_g, norm(v), norm(c), g_times_v, g_reaches)
    pairs = zip(after.gradients, c, strict=True)
    result = [_minus(a, b, alpha, in_place=step.owns_sums) for a, b in pairs]
    return Hypergradient(
        theta=result[: len(theta)],
        phi=result[len(theta) :],
        alpha=alpha,
        inner_loss=step.loss,
        outer_loss=after.loss,
        outer_loss_before=loss_before,
        lengths=lengths,
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
        self._theta, self._parameters = theta, {**theta, **phi}
        # Sums over pieces are tensors of their own; autograd may share what it finds for one piece.
        self.owns_sums = len(inner.pieces) > 1
        self._kept = self._worth_keeping() if has_curvature else range(0)
        self._graphs: list[Edges] = []
        self._states: list[RandomState] = []
        sums = self._sums(list(theta.values()))
        shares = (self._first(place, piece, sums) for place, piece in enumerate(inner.pieces))
        self.loss, self.g, self.is_per_sample = total(shares, sums, setting.ranks)

    def taken(self, alpha: float) -> Parameters:
        """Return θ† = θ − α g† as new leaves (Eq. 9).

        With α above 0 g† is gone then: it is as large as the model, and has no part in what comes.
        """
        if alpha == 0:
            return leaves(self._theta)
        g, self.g = self.g, []
        return moved(self._theta, g, alpha, in_place=self.owns_sums)

    def curvature(self, v: Gradients) -> Gradients:
        """Return c = ∇⟨g†, v⟩ for θ, then φ, from pass 1's graphs or by replaying its forwards.

        A replay draws the same random numbers, and leaves the random state as it found it. The last
        piece comes first: its graph is there, and makes room for those that are computed again.
        """
        places = [n for n, piece in enumerate(self._inner.pieces) if piece.is_curved]
        sums = self._sums(list(self._parameters.values()))
        shares = (self._second(place, v, sums) for place in reversed(places))
        with self._setting.random.unchanged():
            return total(shares, sums, self._setting.ranks).gradients

    def _worth_keeping(self) -> range:
        """Return the places of the pieces whose graphs are kept for pass 3.

        Of a batch in pieces that of the last one always is, since only pass 2 comes between, which
        goes through smaller pieces.
        """
        count = len(self._inner.pieces)
        # A graph serves both passes only where both give its samples the same weights.
        if any(piece.weights is not None for piece in self._inner.pieces):
            return range(0)
        if self._setting.keeps_graphs:
            return range(count)
        return range(count - 1, count) if count > 1 else range(0)

    def _sums(self, wrt: Sequence[Tensor]) -> Sums:
        return Sums(wrt, num_pieces=len(self._inner.pieces))

    def _first(self, place: int, piece: Piece, sums: Sums) -> Derivative:
        self._states.append(self._setting.random.capture())
        if place not in self._kept:
            then = partial(add_share, sums=sums, side=self._inner, piece=piece)
            return self._inner.loss(self._parameters, piece.batch, then)
        then = partial(derive, wrt=sums.wrt, side=self._inner, piece=piece)
        share = self._inner.loss(self._parameters, piece.batch, then)
        self._inspect(share.gradients)
        self._graphs.append(_edges(share.gradients))
        sums.add(share.gradients)
        return share._replace(gradients=[])

    def _second(self, place: int, v: Gradients, sums: Sums) -> Derivative:
        piece, state = self._inner.pieces[place], self._states[place]
        if place in self._kept:
            # Taken off the list, so that each graph is freed before the next is walked.
            g = self._graphs.pop()

            def walk(_: Tensor) -> Derivative:
                _pull_back(g, v, sums)
                return Derivative(self.loss, [], self.is_per_sample)

            return self._inner.loss(self._parameters, None, walk)

        def then(loss: Tensor) -> Derivative:
            weighted = loss if piece.weights is None else loss * piece.weights.to(loss)
            theta = list(self._theta.values())
            with unread(theta):
                share = derive(weighted, theta, side=self._inner, piece=piece)
            self._inspect(share.gradients)
            _pull_back(_edges(share.gradients), v, sums)
            return share._replace(gradients=[])

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


def _evaluated(
    side: Side, parameters: Parameters, wrt: Sequence[Tensor], setting: Setting
) -> Derivative:
    sums = Sums(wrt, num_pieces=len(side.pieces))
    shares = (
        side.loss(parameters, piece.batch, partial(add_share, sums=sums, side=side, piece=piece))
        for piece in side.pieces
    )
    return total(shares, sums, setting.ranks)


def _edges(g: Gradients) -> Edges:
    """Return where the graph of each gradient ends, without its numbers; None for a constant."""
    return [
        None if slope is None or not slope.requires_grad else get_gradient_edge(slope)
        for slope in g
    ]


def _pull_back(g: Edges, v: Gradients, sums: Sums) -> None:
    """Add ∇⟨g, v⟩ to the sums; a gradient that is constant contributes nothing."""
    pairs = [
        (edge, direction)
        for edge, direction in zip(g, v, strict=True)
        if edge is not None and direction is not None
    ]
    if pairs:
        edges, directions = zip(*pairs, strict=True)
        sums.add_gradient(edges, directions)


def _minus(a: Tensor | None, b: Tensor | None, alpha: float, *, in_place: bool) -> Tensor | None:
    """Return a − α b, None standing for zero; in place it takes the memory of b."""
    if b is None:
        return a
    out = b if in_place else None
    return torch.mul(b, -alpha, out=out) if a is None else torch.sub(a, b, alpha=alpha, out=out)
