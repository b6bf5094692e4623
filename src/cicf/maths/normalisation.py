"""From what a network takes to pixels from 0 to 1, and back."""

from jaxtyping import Float
from torch import Tensor

Channels = tuple[float, float, float]
"""A number for each channel."""


def to_pixels(
    x: Float[Tensor, "m 3 h w"], mean: Channels, std: Channels
) -> Float[Tensor, "m 3 h w"]:
    """Return the images as they were before `mean` was taken away and `std` divided by."""
    return x * x.new_tensor(std)[:, None, None] + x.new_tensor(mean)[:, None, None]


def from_pixels(
    pixels: Float[Tensor, "m 3 h w"], mean: Channels, std: Channels
) -> Float[Tensor, "m 3 h w"]:
    """Return the images as a network takes them."""
    return (pixels - pixels.new_tensor(mean)[:, None, None]) / pixels.new_tensor(std)[:, None, None]
