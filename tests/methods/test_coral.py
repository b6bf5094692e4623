"""CORAL: the loss against moments of NumPy, its slope against differences, its limits."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    gradients_of,
    layout,
    pictures,
    samples,
)
from tests.support.slopes import assert_slopes
from tests.support.tiny import config as tiny_run
from tests.support.tiny import write_images
from torch import Tensor

import cicf
from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.sampling import Sampling
from cicf.methods import Coral, CoralConfig
from cicf.models.split import SplitModel


def coral(model: SplitModel, gamma: float = 1.0) -> Coral:
    method = built(CoralConfig(gamma=gamma), model, pictures(3))
    assert isinstance(method, Coral)
    return method


def batch(num_domains: int = 3, *, count: int = 20) -> Samples:
    """Return images of all domains and classes in no order."""
    data = pictures(num_domains)
    stream = torch.Generator().manual_seed(1)
    return samples(data, torch.randperm(len(data), generator=stream)[:count])


def penalty_by_numpy(features: Tensor, domain: Tensor) -> float:
    """Return the mean over pairs of domains of both mean squares, by NumPy's own moments."""
    groups = [features[domain == each].detach().numpy() for each in domain.unique()]
    gaps = [
        np.mean((a.mean(0) - b.mean(0)) ** 2)
        + np.mean((np.cov(a, rowvar=False, ddof=1) - np.cov(b, rowvar=False, ddof=1)) ** 2)
        for a, b in itertools.combinations(groups, 2)
    ]
    return float(np.mean(gaps))


def features_by_hand(model: SplitModel, x: Tensor) -> Tensor:
    net = model.network
    return net.flatten(net.block3(net.block2(net.block1(x))))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("num_domains", [2, 3])
@pytest.mark.parametrize("gamma", [1.0, 0.3])
def test_the_loss_is_cross_entropy_and_differences_of_moments(
    num_domains: int, gamma: float
) -> None:
    model, part = layout(), batch(num_domains)
    found = coral(model, gamma).loss(model, part)
    features = features_by_hand(model, part.x)
    expected = F.cross_entropy(model.network.head(features), part.y)
    expected = expected + gamma * penalty_by_numpy(features, part.domain)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_its_slope_is_that_of_finite_differences() -> None:
    model, part = layout(), batch(count=12)
    method = coral(model, gamma=50.0)
    weights = list(model.parameters())
    slopes = torch.autograd.grad(method.loss(model, part), weights)
    assert_slopes(lambda: method.loss(model, part), weights, slopes)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("domain", [[5] * 8, [5] * 7 + [2]])
def test_a_batch_of_one_domain_and_at_most_one_image_more_has_no_penalty(
    domain: list[int],
) -> None:
    model = layout()
    part = samples(pictures(3), torch.arange(8))._replace(domain=torch.tensor(domain))
    found = gradients_of(coral(model), Draw(part, None))
    assert_same(found, cross_entropy_gradients(model, part), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_an_image_alone_in_its_domain_counts_in_the_cross_entropy_only() -> None:
    model, part = layout(), batch(count=15)
    lone = part._replace(domain=torch.where(torch.arange(15) == 3, 9, part.domain))
    rest = torch.arange(15) != 3
    features = features_by_hand(model, lone.x)
    expected = F.cross_entropy(model.network.head(features), lone.y)
    expected = expected + penalty_by_numpy(features[rest], lone.domain[rest])
    torch.testing.assert_close(coral(model).loss(model, lone), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_a_batch_that_lacks_a_class_is_aligned_all_the_same() -> None:
    model, whole = layout(), batch(count=24)
    part = Samples(*(field[whole.y != 1] for field in whole))
    features = features_by_hand(model, part.x)
    expected = F.cross_entropy(model.network.head(features), part.y)
    expected = expected + penalty_by_numpy(features, part.domain)
    torch.testing.assert_close(coral(model).loss(model, part), expected, rtol=0, atol=1e-10)


def test_a_batch_has_as_many_images_of_every_domain() -> None:
    method = coral(layout())
    assert method.sampling == Sampling(outer="domains")
    counts = draw_for(method, pictures(3), outer=24).outer.domain.bincount()
    assert counts.tolist() == [8, 8, 8]


def test_one_source_domain_is_refused(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, data={"target": None, "source": "art"}, method={"name": "coral"})
    with pytest.raises(ConfigError, match="'coral' needs images of at least 2 source domains"):
        cicf.train(run, out=tmp_path / "run")


@pytest.mark.parametrize("gamma", [-1.0, float("inf"), float("nan")])
def test_a_weight_without_sense_is_refused(gamma: float) -> None:
    with pytest.raises(ValidationError, match="gamma"):
        CoralConfig(gamma=gamma)
