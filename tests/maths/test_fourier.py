"""Amplitudes and phases against NumPy's transform, and what mixing them does to an image."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.fourier import amplitude_mix, image_of, spectrum

quick = settings(max_examples=20, deadline=None)
sides = st.integers(2, 9)


def pixels(count: int, height: int, width: int, seed: int) -> Tensor:
    """Return images whose values are 0 to 1."""
    stream = torch.Generator().manual_seed(seed)
    return torch.rand(count, 3, height, width, generator=stream, dtype=torch.float64)


def mixed_by_numpy(x: np.ndarray, partner: np.ndarray, lam: float) -> np.ndarray:
    """Return one channel with mixed amplitudes, by the whole transform."""
    own, other = np.fft.fft2(x), np.fft.fft2(partner)
    amplitude = (1 - lam) * np.abs(own) + lam * np.abs(other)
    found = np.fft.ifft2(amplitude * np.exp(1j * np.angle(own)))
    assert np.abs(found.imag).max() < 1e-12
    return found.real


@quick
@given(height=sides, width=sides)
def test_a_spectrum_is_that_of_numpy_up_to_the_middle_column(height: int, width: int) -> None:
    x = pixels(2, height, width, seed=1)
    found, expected = spectrum(x), np.fft.fft2(x.numpy())[..., : width // 2 + 1]
    np.testing.assert_allclose(found.amplitude, np.abs(expected), atol=1e-12)
    as_complex = found.amplitude.numpy() * np.exp(1j * found.phase.numpy())
    np.testing.assert_allclose(as_complex, expected, atol=1e-12)


@quick
@given(height=sides, width=sides)
def test_an_image_comes_back_from_its_spectrum(height: int, width: int) -> None:
    x = pixels(2, height, width, seed=2)
    torch.testing.assert_close(image_of(spectrum(x), (height, width)), x, rtol=0, atol=1e-14)


@quick
@given(height=sides, width=sides, lam=st.floats(0, 1))
def test_a_mix_is_that_of_the_whole_transform(height: int, width: int, lam: float) -> None:
    x, partner = pixels(3, height, width, seed=3), pixels(3, height, width, seed=4)
    lams = torch.tensor([lam, 0.25, 1.0], dtype=torch.float64)
    found = amplitude_mix(x, partner, lams)
    for image in range(3):
        for channel in range(3):
            expected = mixed_by_numpy(
                x[image, channel].numpy(), partner[image, channel].numpy(), float(lams[image])
            )
            np.testing.assert_allclose(found[image, channel], expected, atol=1e-12)


def test_a_mix_of_nothing_is_the_image_itself() -> None:
    x, partner = pixels(2, 6, 7, seed=5), pixels(2, 6, 7, seed=6)
    found = amplitude_mix(x, partner, torch.zeros(2, dtype=torch.float64))
    torch.testing.assert_close(found, x, rtol=0, atol=1e-14)


def test_a_whole_mix_has_the_amplitudes_of_the_partner_and_the_phases_of_the_image() -> None:
    x, partner = pixels(2, 6, 7, seed=7), pixels(2, 6, 7, seed=8)
    found = np.fft.fft2(amplitude_mix(x, partner, torch.ones(2, dtype=torch.float64)).numpy())
    np.testing.assert_allclose(np.abs(found), np.abs(np.fft.fft2(partner.numpy())), atol=1e-12)
    turned = found / np.exp(1j * np.angle(np.fft.fft2(x.numpy())))
    assert turned.real.min() > 0
    np.testing.assert_allclose(turned.imag, 0, atol=1e-12)


def test_means_of_pixels_mix_as_they_are() -> None:
    x, partner = pixels(2, 6, 7, seed=9), pixels(2, 6, 7, seed=10)
    lam = torch.tensor([0.3, 0.8], dtype=torch.float64)
    found = amplitude_mix(x, partner, lam).mean(dim=(2, 3))
    share = lam[:, None]
    expected = (1 - share) * x.mean(dim=(2, 3)) + share * partner.mean(dim=(2, 3))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)


def test_without_the_mean_taken_away_only_the_mean_of_a_mix_would_differ() -> None:
    x, partner = 0.4 * pixels(2, 6, 7, seed=11), 0.6 + 0.4 * pixels(2, 6, 7, seed=12)
    mean, std, share = 0.5, 0.2, 0.7
    lam = torch.full((2,), share, dtype=torch.float64)
    right = (amplitude_mix(x, partner, lam) - mean) / std
    other = amplitude_mix((x - mean) / std, (partner - mean) / std, lam)
    gap = right - other
    expected = right.mean(dim=(2, 3)) - other.mean(dim=(2, 3))
    torch.testing.assert_close(gap, expected[..., None, None].expand_as(gap), rtol=0, atol=1e-13)
    # The image is darker than the mean and its partner brighter: the other mix makes it darker.
    own, others = (each.mean(dim=(2, 3)) - mean for each in (x, partner))
    closed = ((1 - share) * own + share * others + (1 - share) * own.abs() + share * others) / std
    torch.testing.assert_close(expected, closed, rtol=0, atol=1e-13)


def test_the_gradient_of_a_mix_by_its_images_is_that_of_finite_differences() -> None:
    x, partner = pixels(1, 4, 5, seed=13), pixels(1, 4, 5, seed=14)
    lam = torch.tensor([0.4], dtype=torch.float64)
    x, partner, lam = (each.requires_grad_() for each in (x, partner, lam))
    assert torch.autograd.gradcheck(amplitude_mix, (x, partner, lam))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_mix_keeps_the_type_of_its_images(dtype: torch.dtype) -> None:
    x = pixels(2, 4, 4, seed=15).to(dtype)
    assert amplitude_mix(x, x.flip(0), torch.ones(2, dtype=dtype)).dtype == dtype
