"""ReLU, max pooling and batch norm by running statistics, with lean second derivatives.

Where torch passes zeros on, because a second derivative vanishes, these pass nothing on.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import Function

from cicf.maths.convolution import Images, channels_last
from cicf.maths.unread import blank, is_unread

_aten = torch.ops.aten
_ROWS = 1024
"""Places of images whose slopes are added up one after the other."""


def rectified(x: Float[Tensor, "..."], *, in_place: bool = False) -> Float[Tensor, "..."]:
    """Return max(x, 0), whose slope is 0 at 0 as in torch."""
    found: Tensor = _Rectified.apply(x, in_place)
    return found


class _Rectified(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, in_place: bool) -> Tensor:
        if in_place:
            ctx.mark_dirty(x)
        y = x.relu_() if in_place else x.relu()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        (y,) = ctx.saved_tensors
        return _Masked.apply(slopes[0], y.detach()), None


class _Masked(Function):
    """Is the slope where y > 0, and 0 elsewhere; linear, and its own backward."""

    @staticmethod
    def forward(ctx: Any, slope: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(y)
        found: Tensor = _aten.threshold_backward(slope, y, 0)
        return found

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        (y,) = ctx.saved_tensors
        return _Masked.apply(directions[0], y), None


def place_of(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return a tensor without numbers whose slope is that of x, also when x is changed in place."""
    found: Tensor = _Place.apply(x)
    return found


class _Place(Function):
    @staticmethod
    def forward(_: Any, x: Tensor) -> Tensor:
        return blank(x)

    @staticmethod
    def backward(_: Any, *slopes: Any) -> Any:
        return slopes[0]


class Window(NamedTuple):
    """Says how a pooling window moves, each by rows and columns."""

    size: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    rounds_up: bool


def max_pooled(x: Images, window: Window) -> Images:
    """Return the largest value in every place of the window."""
    found: Tensor = _MaxPooled.apply(x, channels_last(x.detach()), window)
    return found


def rectified_and_pooled(before: Images, after: Images, window: Window) -> Images:
    """Return the largest values of what a ReLU has made of an image, given both.

    Their slope belongs to the image where they are above 0, so that the ReLU need not be asked. Of
    the image itself no numbers are read.
    """
    y: Tensor = _MaxPooled.apply(before, channels_last(after.detach()), window)
    return rectified(y, in_place=True)


class _MaxPooled(Function):
    """Pools a value, and gives its slope to x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, window: Window) -> Tensor:
        y: Tensor
        y, places = _aten.max_pool2d_with_indices(value, *window)
        ctx.save_for_backward(places)
        # The gradient asks for the shape of x only, so that x itself need not be kept.
        ctx.shape, ctx.window = x.shape, window
        return y

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        (places,) = ctx.saved_tensors
        return _Spread.apply(channels_last(slopes[0]), places, ctx.shape, ctx.window), None, None


class _Spread(Function):
    """Is the slope at the place that each came from; linear, its backward picks the places."""

    @staticmethod
    def forward(
        ctx: Any, slope: Tensor, places: Tensor, shape: torch.Size, window: Window
    ) -> Tensor:
        ctx.save_for_backward(places)
        found = torch.empty(
            shape, dtype=slope.dtype, device=slope.device, memory_format=torch.channels_last
        )
        # Asked for the image, of which it takes the shape alone, it gets what it is to fill.
        _aten.max_pool2d_with_indices_backward.grad_input(
            slope, found, *window, places, grad_input=found
        )
        return found

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        (places,) = ctx.saved_tensors
        n, c, h, w = places.shape
        found = _rows(channels_last(directions[0])).gather(1, _rows(places))
        return found.view(n, h, w, c).permute(0, 3, 1, 2), None, None, None


def _rows(images: Tensor) -> Tensor:
    """Return images as rows of channels, a view where channels are last."""
    return images.permute(0, 2, 3, 1).flatten(1, 2)


class Statistics(NamedTuple):
    """Holds the running statistics of a batch norm, which are constants."""

    mean: Float[Tensor, " c"]
    variance: Float[Tensor, " c"]
    epsilon: float

    @property
    def scale(self) -> Float[Tensor, " c"]:
        """Return one over the standard deviation."""
        return (self.variance + self.epsilon).rsqrt()


def affine(
    x: Images, weight: Float[Tensor, " c"], bias: Float[Tensor, " c"], by: Statistics
) -> Images:
    """Return weight (x − mean) / deviation + bias in one pass."""
    # The same factor for both, so that its rounding cancels where x is near the mean.
    factor = by.scale * weight
    return torch.addcmul(_along(bias - by.mean * factor), x, _along(factor))


def normalised(
    x: Images, weight: Float[Tensor, " c"], bias: Float[Tensor, " c"], by: Statistics
) -> Images:
    """Return batch norm by running statistics, which can be differentiated twice."""
    names = id(weight), id(bias)
    found: Tensor = _Normalised.apply(channels_last(x), weight, bias, by, names)
    return found


class _Normalised(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        by: Statistics,
        names: tuple[int, int],
    ) -> Tensor:
        # Saved, not kept, so that torch sees it when a model moves its statistics in between.
        ctx.save_for_backward(x, weight, by.mean, by.variance)
        ctx.epsilon, ctx.names = by.epsilon, names
        return affine(x, weight, bias, by)

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        x, weight, mean, variance = ctx.saved_tensors
        slope, by = channels_last(slopes[0]), Statistics(mean, variance, ctx.epsilon)
        is_read = not all(map(is_unread, ctx.names))
        return *_NormalisedGradient.apply(slope, x, weight, by, is_read), None, None


class _NormalisedGradient(Function):
    """Is the gradient for image, weight and bias; its backward is the second derivative."""

    @staticmethod
    def forward(
        ctx: Any, slope: Tensor, x: Tensor, weight: Tensor, by: Statistics, is_read: bool
    ) -> Any:
        ctx.save_for_backward(slope, x, weight)
        ctx.by = by
        if is_read:
            return _gradient(slope, x, weight, by)
        return slope * _along(by.scale * weight), blank(weight), blank(weight)

    @staticmethod
    def backward(ctx: Any, *directions: Any) -> Any:
        """Pull directions (a, k, b) for image, weight and bias back to slope, image and weight.

        ⟨gradient, direction⟩ = ⟨slope, (weight a + k (x − mean)) / deviation + b⟩.
        """
        slope, x, weight = ctx.saved_tensors
        image, k, b = directions
        image, by = channels_last(image), ctx.by
        # Centred first: a shift of b by the mean would round as coarsely as the mean is large.
        to_slope = torch.addcmul(_along(b), x - _along(by.mean), _along(by.scale * k))
        to_slope.addcmul_(image, _along(by.scale * weight))
        # What the slope has to do with a as an image, and with k as a weight, is one gradient.
        centred = by._replace(mean=torch.zeros_like(by.mean))
        to_image, to_weight, _ = _gradient(slope, image, k, centred)
        return to_slope, to_image, to_weight, None, None


def _gradient(slope: Tensor, x: Tensor, weight: Tensor, by: Statistics) -> tuple[Tensor, ...]:
    rows = [each.permute(0, 2, 3, 1).reshape(-1, len(weight), 1, 1) for each in (slope, x)]
    # torch adds up in single precision, one row after the other: in pieces, the error stays small.
    sums = [
        _aten.native_batch_norm_backward(
            *piece, weight, *by[:2], None, None, False, by.epsilon, (False, True, True)
        )[1:]
        for piece in zip(*(each.split(_ROWS) for each in rows), strict=True)
    ]
    to_weight, to_bias = (torch.stack(each).sum(0) for each in zip(*sums, strict=True))
    return slope * _along(by.scale * weight), to_weight, to_bias


def _along(values: Float[Tensor, " c"]) -> Float[Tensor, "c 1 1"]:
    return values[:, None, None]
