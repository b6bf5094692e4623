"""Gradients that nobody reads are not computed, and their derivatives are what they were."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from cicf.maths.convolution import Geometry, convolved
from cicf.maths.folded import Convolved, folded
from cicf.maths.linear import linear
from cicf.maths.operators import Statistics, normalised
from cicf.maths.unread import blank, unread

pytestmark = pytest.mark.usefixtures("float64")

HOW = Geometry((1, 1), (1, 1), (1, 1), 1)


def norm_of_convolution(x: Tensor, kernel: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    of = Convolved(x, kernel, HOW, convolved(x, kernel, None, HOW))
    return folded(of, weight, bias, Statistics(torch.ones(4), torch.full((4,), 2.0), 1e-5))


OPERATORS: dict[str, tuple[Callable[..., Tensor], list[Tensor]]] = {
    "convolved": (
        lambda x, weight, bias: convolved(x, weight, bias, HOW),
        [torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3), torch.randn(4)],
    ),
    "linear": (linear, [torch.randn(6, 3), torch.randn(4, 3), torch.randn(4)]),
    "normalised": (
        lambda x, weight, bias: normalised(
            x, weight, bias, Statistics(torch.ones(3), torch.full((3,), 2.0), 1e-5)
        ),
        [torch.randn(2, 3, 5, 5), torch.randn(3), torch.randn(3)],
    ),
    "folded": (
        norm_of_convolution,
        [torch.randn(2, 3, 5, 5), torch.randn(4, 3, 3, 3), torch.randn(4), torch.randn(4)],
    ),
}
each_operator = pytest.mark.parametrize("name", OPERATORS)


def leaves_of(name: str) -> list[Tensor]:
    return [each.double().requires_grad_() for each in OPERATORS[name][1]]


def first(name: str, leaves: list[Tensor], *, is_unread: bool) -> tuple[Tensor, ...]:
    """Return the gradients of a curved function of what the operator returns."""
    y = OPERATORS[name][0](*leaves)
    with unread(leaves) if is_unread else nullcontext():
        return torch.autograd.grad((y**3).sum(), leaves, create_graph=True)


@each_operator
def test_unread_gradients_take_no_memory(name: str) -> None:
    _, *of_parameters = first(name, leaves_of(name), is_unread=True)
    for slope in of_parameters:
        assert slope.requires_grad
        assert slope.untyped_storage().nbytes() == slope.element_size()
        assert not slope.any()


@each_operator
def test_their_derivative_is_that_of_the_gradient(name: str) -> None:
    leaves = leaves_of(name)
    directions = [torch.randn_like(each) for each in leaves]
    found, expected = (
        torch.autograd.grad(first(name, leaves, is_unread=is_unread), leaves, directions)
        for is_unread in (True, False)
    )
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@each_operator
def test_gradients_of_other_tensors_are_computed(name: str) -> None:
    x, *parameters = leaves_of(name)
    copies = [each * 1 for each in parameters]
    y = OPERATORS[name][0](x, *copies)
    with unread(parameters):
        found = torch.autograd.grad((y**3).sum(), copies, create_graph=True)
    expected = first(name, [x, *parameters], is_unread=False)[1:]
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b)


@each_operator
def test_a_hook_reads_the_gradient(name: str) -> None:
    leaves = leaves_of(name)
    expected = [each.detach() for each in first(name, leaves, is_unread=False)]
    for leaf in leaves:
        leaf.register_hook(lambda slope: slope * 2)
    for a, b in zip(first(name, leaves, is_unread=True), expected, strict=True):
        torch.testing.assert_close(a, 2 * b)


@each_operator
def test_afterwards_gradients_are_read_again(name: str) -> None:
    leaves = leaves_of(name)
    expected = first(name, leaves, is_unread=False)
    first(name, leaves, is_unread=True)
    for a, b in zip(first(name, leaves, is_unread=False), expected, strict=True):
        torch.testing.assert_close(a, b)


def test_blank_has_the_shape_and_the_kind_of_what_it_stands_for() -> None:
    like = torch.randn(3, 4, dtype=torch.float32)
    found = blank(like)
    assert (found.shape, found.dtype, found.device) == (like.shape, like.dtype, like.device)
