"""Normalisation undone and done again, against what the transforms of a run do."""

import torch
from tests.support.methods import pictures

from cicf.data.loader import Evaluated
from cicf.data.transforms import HALF, IMAGENET, Transform
from cicf.maths.normalisation import from_pixels, to_pixels


def test_pixels_are_those_of_the_image_file() -> None:
    data = pictures(2)
    for mean, std in (IMAGENET, HALF):
        x = Evaluated(data, Transform(16, mean, std, augment="none")).batch(torch.arange(5)).x
        expected = data.images[:5].to(torch.float32) / 255
        torch.testing.assert_close(to_pixels(x, mean, std), expected, rtol=0, atol=1e-6)


def test_pixels_are_normalised_as_a_run_does_it() -> None:
    data = pictures(2)
    for mean, std in (IMAGENET, HALF):
        x = Evaluated(data, Transform(16, mean, std, augment="none")).batch(torch.arange(5)).x
        pixels = data.images[:5].to(torch.float32) / 255
        torch.testing.assert_close(from_pixels(pixels, mean, std), x, rtol=0, atol=1e-5)
