"""Styles of maps against loops in NumPy."""

import numpy as np
import pytest
import torch
from torch import Tensor

from cicf.maths.style import channel_statistics, with_mixed_styles

pytestmark = pytest.mark.usefixtures("float64")


def some_maps(n: int = 4) -> Tensor:
    return torch.randn(n, 3, 5, 2) * torch.rand(n, 3, 1, 1) + torch.randn(n, 3, 1, 1)


def styles_by_hand(z: Tensor, eps: float) -> tuple[np.ndarray, np.ndarray]:
    values = z.numpy()
    mean, std = np.zeros(values.shape[:2]), np.zeros(values.shape[:2])
    for i in range(values.shape[0]):
        for c in range(values.shape[1]):
            places = values[i, c].ravel()
            mean[i, c] = sum(places) / len(places)
            squares = sum((place - mean[i, c]) ** 2 for place in places)
            std[i, c] = (squares / (len(places) - 1) + eps) ** 0.5
    return mean, std


@pytest.mark.parametrize("eps", [1e-6, 0.5])
def test_statistics_are_those_of_each_channel_of_each_image(eps: float) -> None:
    z = some_maps()
    mean, std = channel_statistics(z, eps=eps)
    expected_mean, expected_std = styles_by_hand(z, eps)
    np.testing.assert_allclose(mean.numpy(), expected_mean, rtol=0, atol=1e-12)
    np.testing.assert_allclose(std.numpy(), expected_std, rtol=0, atol=1e-12)


def test_a_constant_channel_has_a_deviation_that_can_be_divided_by() -> None:
    mean, std = channel_statistics(torch.full((1, 2, 3, 3), 7.0))
    assert torch.equal(mean, torch.full((1, 2), 7.0))
    torch.testing.assert_close(std, torch.full((1, 2), 1e-3))


def test_mixed_styles_are_what_loops_give() -> None:
    z, partner, share = some_maps(), torch.tensor([2, 0, 1, 1]), torch.tensor([0.3, 0.0, 1.0, 0.8])
    mean, std = styles_by_hand(z, 1e-6)
    expected = np.zeros(z.shape)
    for i in range(len(z)):
        own, other = float(share[i]), int(partner[i])
        for c in range(3):
            normed = (z[i, c].numpy() - mean[i, c]) / std[i, c]
            new_std = own * std[i, c] + (1 - own) * std[other, c]
            expected[i, c] = new_std * normed + own * mean[i, c] + (1 - own) * mean[other, c]
    found = with_mixed_styles(z, partner, share)
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)


def test_a_share_of_one_leaves_a_map_as_it_is() -> None:
    z = some_maps()
    found = with_mixed_styles(z, torch.tensor([1, 2, 3, 0]), torch.ones(4))
    torch.testing.assert_close(found, z, rtol=0, atol=1e-12)


def test_a_share_of_zero_gives_the_style_of_the_partner() -> None:
    z, partner = some_maps(), torch.tensor([1, 2, 3, 0])
    found = channel_statistics(with_mixed_styles(z, partner, torch.zeros(4)), eps=0.0)
    mean, std = channel_statistics(z, eps=0.0)
    torch.testing.assert_close(found.mean, mean[partner], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.std, std[partner], rtol=1e-3, atol=0)


def test_no_gradient_goes_through_styles() -> None:
    z, partner, share = some_maps().requires_grad_(), torch.tensor([2, 0, 1, 1]), torch.rand(4)
    weights = torch.randn(z.shape)
    (found,) = torch.autograd.grad((weights * with_mixed_styles(z, partner, share)).sum(), z)
    _, std = styles_by_hand(z.detach(), 1e-6)
    own = share.numpy()[:, None]
    factor = (own * std + (1 - own) * std[partner.numpy()]) / std
    expected = weights.numpy() * factor[:, :, None, None]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-12)
