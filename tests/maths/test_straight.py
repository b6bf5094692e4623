"""Gradients of weights that are added to their sums while they are found."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from cicf.maths.convolution import Geometry, convolved
from cicf.maths.linear import linear
from cicf.maths.shares import Sums
from cicf.maths.straight import Walk, made, straight

pytestmark = pytest.mark.usefixtures("float64")

Loss = Callable[[Tensor, Tensor], Tensor]


def once(x: Tensor, weight: Tensor) -> Tensor:
    return linear(x, weight, None).square().sum()


def twice(x: Tensor, weight: Tensor) -> Tensor:
    return linear(linear(x, weight, None).tanh(), weight, None).square().sum()


def tied(x: Tensor, weight: Tensor) -> Tensor:
    return once(x, weight) + (weight.exp() * linear(x, weight, None).sum()).sum()


def of_a_function(x: Tensor, weight: Tensor) -> Tensor:
    return once(x, weight.sin())


KERNELS = {
    "in few places": (2, (1, 1)),
    "strided, in few places": (4, (2, 2)),
    "in many places": (4, (1, 1)),
}


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("num_pieces", [1, 3])
@pytest.mark.parametrize("is_tied", [False, True])
def test_sums_of_kernels_are_what_autograd_gives(name: str, num_pieces: int, is_tied: bool) -> None:
    side, stride = KERNELS[name]
    kernel, direction = torch.randn(3, 2, 3, 3, requires_grad=True), torch.randn(3, 2, 3, 3)
    how = Geometry(stride, (1, 1), (1, 1), 1)

    def slope(x: Tensor) -> Tensor:
        y = convolved(x, kernel, None, how).square().sum()
        loss = y * kernel.exp().sum() if is_tied else y
        return torch.autograd.grad(loss, kernel, create_graph=True)[0]

    pieces = torch.randn(num_pieces, 5, 2, side, side)
    sums = Sums([kernel], num_pieces=num_pieces)
    for x in pieces:
        sums.add_gradient([slope(x)], [direction])
    (expected,) = torch.autograd.grad(sum(map(slope, pieces)), kernel, direction)
    torch.testing.assert_close(sums.gradients[0], expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("loss", [once, twice, tied, of_a_function])
@pytest.mark.parametrize("num_pieces", [1, 3])
def test_sums_are_what_autograd_gives(loss: Loss, num_pieces: int) -> None:
    weight, pieces = torch.randn(4, 4, requires_grad=True), torch.randn(num_pieces, 5, 4)
    sums = Sums([weight], num_pieces=num_pieces)
    for x in pieces:
        sums.add_gradient([loss(x, weight)])
    (expected,) = torch.autograd.grad(sum(loss(x, weight) for x in pieces), weight)
    torch.testing.assert_close(sums.gradients[0], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("loss", [once, twice, tied, of_a_function])
def test_sums_of_second_derivatives_are_what_autograd_gives(loss: Loss) -> None:
    weight, direction = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
    pieces = torch.randn(3, 5, 4)

    def slope(x: Tensor) -> Tensor:
        return torch.autograd.grad(loss(x, weight), weight, create_graph=True)[0]

    sums = Sums([weight], num_pieces=3)
    for x in pieces:
        sums.add_gradient([slope(x)], [direction])
    (expected,) = torch.autograd.grad(sum(map(slope, pieces)), weight, direction)
    torch.testing.assert_close(sums.gradients[0], expected, rtol=1e-12, atol=1e-12)


def test_autograd_gets_nothing_of_what_was_added() -> None:
    weight, x = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    added: list[Tensor] = []
    loss, walk = once(x, weight), Walk()
    adders = {id(weight): lambda make: added.append(make(torch.ones(3, 4)))}
    with walk.begun_at([loss.grad_fn]), straight(walk, adders):
        (found,) = torch.autograd.grad(loss, weight, allow_unused=True)
    assert found is None
    torch.testing.assert_close(added, [1 + 2 * (weight @ x.t() @ x)])


def test_nothing_is_added_outside_of_the_walk() -> None:
    weight, other = torch.empty(0), torch.empty(0)
    with straight(Walk(), {id(weight): lambda _: None}):
        assert made(id(weight), lambda _: other) is other
    assert made(id(weight), lambda _: other) is other


class Doubled(torch.autograd.Function):
    """Is a linear layer with twice its gradient, which its own walk through a graph finds."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.inputs = x, weight
        with torch.enable_grad():
            ctx.y = linear(x, weight, None)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        (found,) = torch.autograd.grad(ctx.y, ctx.inputs[1], slopes[0], retain_graph=True)
        return None, 2 * found


@pytest.mark.parametrize("num_pieces", [1, 2])
def test_a_function_that_asks_autograd_on_the_way_gets_its_answer(num_pieces: int) -> None:
    weight, pieces = torch.randn(3, 4, requires_grad=True), torch.randn(num_pieces, 5, 4)
    sums = Sums([weight], num_pieces=num_pieces)
    for x in pieces:
        y: Tensor = Doubled.apply(x, weight)  # type: ignore[no-untyped-call]
        sums.add_gradient([y.sum()])
    expected = 2 * pieces.sum((0, 1)).expand(3, 4)
    torch.testing.assert_close(sums.gradients[0], expected)
