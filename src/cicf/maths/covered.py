"""Convolution of images so small that the kernel covers each wherever it stands.

Then a convolution is one matrix product, without the taps that would only meet padding: 16 of 36
for an image of 2x2 under a padded kernel of 3x3. Channels are last in all tensors.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def is_covered(
    image: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> bool:
    """Tell whether every tap that an image has to do with lies within the kernel, in all places."""
    return all(
        (size + 2 * pad - taps) // step * step <= pad and size - 1 + pad <= taps - 1
        for size, taps, step, pad in zip(image, kernel, stride, padding, strict=True)
    )


def value(x: Tensor, kernel: Tensor, bias: Tensor | None, places: Int[Tensor, "p q"]) -> Tensor:
    """Return the convolution, a map with a row for every place p of the kernel."""
    found = _flat(x) @ _matrix(kernel, places).t()
    rows = found.view(len(x), len(places), len(kernel))
    return rows if bias is None else rows + bias


def for_image(slope: Tensor, kernel: Tensor, places: Int[Tensor, "p q"]) -> Tensor:
    """Return the gradient for the image, a row for every pixel q."""
    found = _flat(slope) @ _matrix(kernel, places)
    return found.view(len(slope), places.shape[1], kernel.shape[1])


def for_kernel(
    slope: Tensor, x: Tensor, kernel: Tensor, places: Int[Tensor, "p q"]
) -> Float[Tensor, "o taps c"]:
    """Return the gradient for the kernel: each tap gathers what it met in all places."""
    o, c = kernel.shape[:2]
    met = (_flat(slope).t() @ _flat(x)).view(len(places), o, places.shape[1], c)
    found = slope.new_zeros(o, kernel.shape[2] * kernel.shape[3], c)
    for taps, part in zip(places, met, strict=True):
        found.index_add_(1, taps, part)
    return found


def taps_of(
    image: tuple[int, int],
    places: tuple[int, int],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Int[Tensor, "p q"]:
    """Return which tap of the kernel stands on pixel q when it is at place p."""
    lines = [
        torch.arange(size)[None, :] - step * torch.arange(count)[:, None] + pad
        for size, count, step, pad in zip(image, places, stride, padding, strict=True)
    ]
    rows, columns = lines[0][:, None, :, None], lines[1][None, :, None, :]
    return (rows * kernel[1] + columns).flatten(2).flatten(0, 1)


def _matrix(kernel: Tensor, places: Int[Tensor, "p q"]) -> Float[Tensor, "rows columns"]:
    """Return the convolution as a matrix: from pixels and channels to places and channels."""
    o, c = kernel.shape[:2]
    taps = kernel.permute(0, 2, 3, 1).reshape(o, -1, c)
    blocks = taps.index_select(1, places.flatten()).view(o, len(places), places.shape[1], c)
    return blocks.transpose(0, 1).reshape(len(places) * o, -1)


def _flat(images: Tensor) -> Float[Tensor, "n numbers"]:
    return images.permute(0, 2, 3, 1).reshape(len(images), -1)
