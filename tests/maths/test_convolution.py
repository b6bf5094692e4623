"""Convolution and its derivatives against torch's own, and against finite differences."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths import convolution
from cicf.maths.convolution import Geometry, convolved

pytestmark = pytest.mark.usefixtures("float64")

Convolution = Callable[[Tensor, Tensor, Tensor | None, Geometry], Tensor]
SIMPLE = Geometry((1, 1), (0, 0), (1, 1), 1)
# channels in and out, kernel, image, geometry
CASES = {
    "plain": (3, 4, (3, 3), (6, 6), SIMPLE),
    "one-by-one": (3, 4, (1, 1), (5, 5), SIMPLE),
    "strided-one-by-one": (3, 4, (1, 1), (5, 5), SIMPLE._replace(stride=(2, 2))),
    "uneven": (2, 3, (3, 2), (7, 5), Geometry((2, 1), (1, 0), (1, 2), 1)),
    "left-over": (2, 3, (3, 3), (8, 8), Geometry((3, 3), (0, 0), (1, 1), 1)),
    "dilated": (2, 3, (3, 3), (7, 8), Geometry((1, 1), (2, 2), (2, 2), 1)),
    "grouped": (4, 6, (3, 3), (5, 5), Geometry((1, 1), (1, 1), (1, 1), 2)),
    "depthwise": (4, 4, (3, 3), (5, 5), Geometry((2, 2), (1, 1), (1, 1), 4)),
    "one-channel": (1, 1, (3, 3), (5, 5), SIMPLE),
    "one-place": (3, 4, (2, 2), (2, 2), SIMPLE),
    "placed": (3, 4, (3, 3), (2, 2), Geometry((1, 1), (1, 1), (1, 1), 1)),
    "strided-placed": (3, 4, (3, 3), (2, 1), Geometry((2, 2), (1, 1), (1, 1), 1)),
    "strided-placed-large": (3, 4, (3, 3), (4, 4), Geometry((2, 2), (1, 1), (1, 1), 1)),
    "placed-one-channel": (1, 4, (3, 3), (2, 2), Geometry((1, 1), (1, 1), (1, 1), 1)),
    "placed-one-filter": (3, 1, (3, 3), (2, 2), Geometry((1, 1), (1, 1), (1, 1), 1)),
    "placed-thin": (3, 4, (3, 1), (3, 3), Geometry((2, 2), (1, 0), (1, 1), 1)),
    "placed-flat": (3, 4, (1, 3), (3, 3), Geometry((2, 2), (0, 1), (1, 1), 1)),
    "placed-far": (3, 4, (2, 3), (5, 4), Geometry((4, 3), (0, 1), (1, 1), 1)),
    "placed-on-padding": (3, 4, (2, 2), (1, 1), Geometry((2, 2), (2, 1), (1, 1), 1)),
    "product": (64, 128, (3, 3), (4, 4), Geometry((1, 1), (1, 1), (1, 1), 1)),
    "strided-product": (128, 64, (3, 2), (5, 7), Geometry((2, 1), (1, 0), (1, 1), 1)),
    "small-product": (64, 64, (1, 1), (3, 5), SIMPLE._replace(stride=(2, 2))),
    "one-place-product": (64, 128, (1, 1), (1, 1), SIMPLE),
}


def torch_convolved(x: Tensor, kernel: Tensor, bias: Tensor | None, how: Geometry) -> Tensor:
    return F.conv2d(x, kernel, bias, how.stride, how.padding, how.dilation, how.groups)


def tensors(name: str, *, n: int = 3, has_bias: bool = True) -> tuple[list[Tensor], Geometry]:
    inside, outside, kernel, image, how = CASES[name]
    x = torch.randn(n, inside, *image, requires_grad=True)
    weight = torch.randn(outside, inside // how.groups, *kernel, requires_grad=True)
    bias = [torch.randn(outside, requires_grad=True)] if has_bias else []
    return [x, weight, *bias], how


def derivatives(convolve: Convolution, inputs: list[Tensor], how: Geometry) -> list[Tensor | None]:
    """Return value, gradients and second derivatives, the slopes' among them."""
    torch.manual_seed(1)
    wrt = [each for each in inputs if each.requires_grad]
    y = convolve(inputs[0], inputs[1], inputs[2] if len(inputs) > 2 else None, how)
    slope = torch.randn(y.shape, requires_grad=True)
    first = torch.autograd.grad(y, wrt, slope, create_graph=True)
    directions = [torch.randn(each.shape) for each in first]
    second = torch.autograd.grad(first, [slope, *wrt], directions, allow_unused=True)
    return [y, *first, *second]


def assert_same(found: list[Tensor | None], expected: list[Tensor | None]) -> None:
    """Compare, None standing for zero."""
    for a, b in zip(found, expected, strict=True):
        if a is None or b is None:
            assert all(each is None or not each.any() for each in (a, b))
        else:
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_value_and_derivatives_are_those_of_torch(name: str, has_bias: bool) -> None:
    inputs, how = tensors(name, has_bias=has_bias)
    assert_same(derivatives(convolved, inputs, how), derivatives(torch_convolved, inputs, how))


@pytest.mark.parametrize("needed", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)])
@pytest.mark.parametrize("name", ["plain", "product"])
def test_only_what_is_needed_has_a_gradient(name: str, needed: tuple[int, ...]) -> None:
    inputs, how = tensors(name)
    for place, each in enumerate(inputs):
        each.requires_grad_(place in needed)
    assert_same(derivatives(convolved, inputs, how), derivatives(torch_convolved, inputs, how))


@pytest.mark.parametrize("name", ["plain", "uneven", "depthwise", "placed", "strided-one-by-one"])
def test_second_derivatives_are_those_of_finite_differences(name: str) -> None:
    inputs, how = tensors(name, n=1)
    torch.autograd.gradgradcheck(
        lambda x, weight, bias: convolved(x, weight, bias, how), inputs, fast_mode=True
    )


@pytest.mark.parametrize("images", [1, 2, 5])
def test_product_is_the_same_in_pieces(images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs, how = tensors("product", n=5)
    expected = derivatives(torch_convolved, inputs, how)
    monkeypatch.setattr(convolution, "_COLUMNS", images * 4 * 4 * 3 * 3 * 64)
    assert_same(derivatives(convolved, inputs, how), expected)


@pytest.mark.parametrize(
    "laid_out",
    [
        lambda x: x.contiguous(memory_format=torch.channels_last),
        lambda x: x.transpose(2, 3).contiguous().transpose(2, 3),
        lambda x: x[:, :, :1].expand(-1, -1, x.shape[2], -1),
        lambda x: torch.cat([x, x], 2)[:, :, 1:-1:2],
    ],
    ids=["channels-last", "transposed", "expanded", "strided"],
)
@pytest.mark.parametrize("name", ["plain", "product"])
def test_layout_of_the_image_changes_nothing(
    name: str, laid_out: Callable[[Tensor], Tensor]
) -> None:
    inputs, how = tensors(name)

    def of(convolve: Convolution) -> Convolution:
        return lambda x, *rest: convolve(laid_out(x), *rest)

    assert_same(
        derivatives(of(convolved), inputs, how), derivatives(of(torch_convolved), inputs, how)
    )


@pytest.mark.parametrize("name", ["plain", "product"])
def test_value_does_not_alias_what_was_saved(name: str) -> None:
    inputs, how = tensors(name)

    def then_changed(convolve: Convolution) -> Convolution:
        return lambda *each: convolve(*each).add_(1).mul_(2)

    assert_same(
        derivatives(then_changed(convolved), inputs, how),
        derivatives(then_changed(torch_convolved), inputs, how),
    )


def test_change_of_a_saved_image_is_refused() -> None:
    inputs, how = tensors("plain")
    image = (inputs[0] * 1).contiguous(memory_format=torch.channels_last)
    y = convolved(image, inputs[1], inputs[2], how)
    image.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["plain", "grouped", "placed", "product"])
def test_third_derivatives_are_those_of_torch(name: str) -> None:
    def third(convolve: Convolution) -> list[Tensor]:
        torch.manual_seed(2)
        inputs, how = tensors(name)
        x, weight = inputs[:2]
        y = convolve(x, weight, inputs[2], how).tanh()
        # A gradient penalty makes the loss a first derivative already.
        (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        g = torch.autograd.grad((slope**2).sum(), inputs, create_graph=True)
        return list(torch.autograd.grad(sum((each**2).sum() for each in g), inputs))

    for found, expected in zip(third(convolved), third(torch_convolved), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12 * float(expected.norm()))


@settings(max_examples=40, deadline=None)
@given(
    pairs=st.tuples(*[st.tuples(*[st.integers(low, 3)] * 2) for low in (1, 1, 0, 1)]),
    image=st.tuples(st.integers(1, 7), st.integers(1, 7)),
    groups=st.integers(1, 3),
    channels=st.tuples(st.integers(1, 2), st.integers(1, 2)),
    n=st.integers(1, 3),
)
def test_any_geometry_is_that_of_torch(
    pairs: tuple[tuple[int, int], ...],
    image: tuple[int, int],
    groups: int,
    channels: tuple[int, int],
    n: int,
) -> None:
    kernel, stride, padding, dilation = pairs
    spans = [d * (k - 1) + 1 for k, d in zip(kernel, dilation, strict=True)]
    assume(all(i + 2 * p >= s for i, p, s in zip(image, padding, spans, strict=True)))
    how = Geometry(stride, padding, dilation, groups)
    x = torch.randn(n, channels[0] * groups, *image, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(
        channels[1] * groups, channels[0], *kernel, dtype=torch.float64, requires_grad=True
    )
    assert_same(
        derivatives(convolved, [x, weight], how), derivatives(torch_convolved, [x, weight], how)
    )


@pytest.mark.parametrize(("channels", "is_fine"), [(64, True), (128, False)])
def test_fine_and_long_convolutions_round_as_torch_does(channels: int, is_fine: bool) -> None:
    x, kernel = torch.randn(4, channels, 8, 8), torch.randn(64, channels, 3, 3)
    how = Geometry((1, 1), (1, 1), (1, 1), 1, is_fine=is_fine)
    expected = torch.conv2d(x, kernel, None, padding=1)
    assert torch.equal(convolved(x, kernel, None, how), expected)
