"""Images by their Fourier transform: amplitudes say what style they have, phases what is shown."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor


class Spectrum(NamedTuple):
    """Holds a 2-D Fourier transform; of the frequencies of a real image, those above the middle
    column are left out, because they are the conjugates of others."""

    amplitude: Float[Tensor, "*n h f"]
    phase: Float[Tensor, "*n h f"]


def spectrum(x: Float[Tensor, "*n h w"]) -> Spectrum:
    """Return amplitude and phase of the transform of each channel, A(x) and P(x)."""
    transformed = torch.fft.rfft2(x)
    return Spectrum(transformed.abs(), transformed.angle())


def image_of(spectrum: Spectrum, size: tuple[int, int]) -> Float[Tensor, "*n h w"]:
    """Return the image with this spectrum; its size says whether the width is odd."""
    image: Tensor = torch.fft.irfft2(torch.polar(spectrum.amplitude, spectrum.phase), s=size)
    return image


def amplitude_mix(
    x: Float[Tensor, "m c h w"], partner: Float[Tensor, "m c h w"], lam: Float[Tensor, " m"]
) -> Float[Tensor, "m c h w"]:
    """Return F⁻¹[((1−λ) A(x) + λ A(x')) exp(i P(x))], the image x in a part λ of the style of x'.

    Not clipped. The mean of a channel is an amplitude too, with a phase of 0 or π: in images that
    have negative values, a mix of means is not what it is in those that have not.
    """
    own, other = spectrum(x), spectrum(partner).amplitude
    share = lam[:, None, None, None]
    mixed = (1 - share) * own.amplitude + share * other
    return image_of(Spectrum(mixed, own.phase), (x.shape[-2], x.shape[-1]))
