"""CCSA: the loss against pairs written out one by one, its slope by differences, its limits."""

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    assert_same,
    built,
    cross_entropy_gradients,
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
from cicf.methods import Ccsa, CcsaConfig
from cicf.models.split import SplitModel


def ccsa(model: SplitModel, **options: float) -> Ccsa:
    method = built(CcsaConfig(**options), model, pictures(3))
    assert isinstance(method, Ccsa)
    return method


def batch(*, count: int = 20) -> Samples:
    """Return images of all domains and classes in no order."""
    data = pictures(3)
    stream = torch.Generator().manual_seed(1)
    return samples(data, torch.randperm(len(data), generator=stream)[:count])


def features_by_hand(model: SplitModel, x: Tensor) -> Tensor:
    net = model.network
    return net.flatten(net.block3(net.block2(net.block1(x))))


def pairs_by_loops(features: Tensor, part: Samples, margin: float) -> tuple[list[float], ...]:
    """Return the values of pairs across domains, first of one class, then of two."""
    z = features.detach().numpy()
    alike, unlike = [], []
    for u in range(len(z)):
        for v in range(u + 1, len(z)):
            if part.domain[u] == part.domain[v]:
                continue
            e = math.sqrt(max(sum(float(t) ** 2 for t in z[u] - z[v]), 1e-8))
            if part.y[u] == part.y[v]:
                alike.append(e**2)
            else:
                unlike.append(max(0.0, margin - e) ** 2)
    return alike, unlike


def mean_cross_entropy(model: SplitModel, part: Samples) -> Tensor:
    return F.cross_entropy(model(part.x), part.y)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("weight", "margin"), [(0.25, 1.0), (0.7, 2.0)])
def test_the_loss_is_cross_entropy_and_the_mean_over_all_pairs(
    weight: float, margin: float
) -> None:
    model, part = layout(), batch()
    method = ccsa(model, weight=weight, margin=margin, negatives_per_positive=math.inf)
    alike, unlike = pairs_by_loops(features_by_hand(model, part.x), part, margin)
    pairs = sum(alike + unlike) / len(alike + unlike)
    expected = (1 - weight) * mean_cross_entropy(model, part) + weight * pairs
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_pairs_of_two_classes_are_as_many_as_allowed_and_chosen_at_random(ratio: float) -> None:
    model, part = layout(), batch(count=6)
    alike, unlike = pairs_by_loops(features_by_hand(model, part.x), part, margin=1.0)
    most = int(ratio * len(alike))
    assert 0 < most < len(unlike)
    method = ccsa(model, weight=1.0, negatives_per_positive=ratio)
    total = len(alike) + most
    pushes = {
        round(float(method.loss(model, part).detach()) * total - sum(alike), 9) for _ in range(40)
    }
    possible = {round(sum(some), 9) for some in subsets(unlike, most)}
    assert pushes <= possible
    assert len(pushes) > 1


def subsets(values: list[float], size: int) -> list[list[float]]:
    if size == 0:
        return [[]]
    return [
        [value, *rest]
        for place, value in enumerate(values)
        for rest in subsets(values[place + 1 :], size - 1)
    ]


@pytest.mark.usefixtures("float64")
def test_three_pairs_of_two_classes_for_one_of_one_class_are_the_default() -> None:
    model, part = layout(), batch(count=24)
    y = part.domain.clone()
    y[0] = (y[0] + 1) % 3
    part = part._replace(y=y)
    features = features_by_hand(model, part.x)
    # Far beyond every distance, so that the push of a pair hardly depends on which pair it is.
    alike, unlike = pairs_by_loops(features, part, margin=1e6)
    assert len(unlike) > 3 * len(alike) > 0
    found = float(ccsa(model, weight=1.0, margin=1e6).loss(model, part).detach())
    assert found == pytest.approx(1e12 * 3 / 4, rel=1e-4)


@pytest.mark.usefixtures("float64")
def test_few_pairs_of_two_classes_are_all_taken() -> None:
    model, part = layout(), batch()
    values = [
        float(ccsa(model, negatives_per_positive=ratio).loss(model, part).detach())
        for ratio in (1000.0, math.inf)
    ]
    assert values[0] == pytest.approx(values[1], rel=1e-14)


def test_the_same_random_state_takes_the_same_pairs() -> None:
    model, part = layout(), batch()
    method = ccsa(model, negatives_per_positive=0.5)
    found = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        found.append(float(method.loss(model, part).detach()))
    assert found[0] == found[1] != found[2]


@pytest.mark.usefixtures("float64")
def test_its_slope_is_that_of_finite_differences() -> None:
    model, part = layout(), batch(count=12)
    method = ccsa(model, weight=0.9, negatives_per_positive=1.0)
    weights = list(model.parameters())

    def value() -> Tensor:
        torch.manual_seed(5)
        return method.loss(model, part)

    assert_slopes(value, weights, torch.autograd.grad(value(), weights))


@pytest.mark.usefixtures("float64")
def test_a_batch_of_one_domain_has_its_share_of_the_cross_entropy_alone() -> None:
    model = layout()
    part = samples(pictures(3), torch.arange(8))
    found = gradients_of(ccsa(model, weight=0.25), Draw(part, None))
    expected = {name: 0.75 * value for name, value in cross_entropy_gradients(model, part).items()}
    assert_same(found, expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(("ratio", "has_push"), [(3.0, False), (math.inf, True)])
def test_without_a_pair_of_one_class_there_are_no_others_unless_all_are_asked_for(
    ratio: float, has_push: bool
) -> None:
    model, part = layout(), batch(count=6)
    part = part._replace(y=part.domain.clone())
    method = ccsa(model, weight=0.5, negatives_per_positive=ratio)
    _, unlike = pairs_by_loops(features_by_hand(model, part.x), part, margin=1.0)
    push = sum(unlike) / len(unlike) if has_push else 0.0
    expected = 0.5 * mean_cross_entropy(model, part) + 0.5 * push
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_a_batch_that_lacks_a_class_has_pairs_of_the_others() -> None:
    model, whole = layout(), batch(count=24)
    part = Samples(*(field[whole.y != 1] for field in whole))
    method = ccsa(model, negatives_per_positive=math.inf)
    alike, unlike = pairs_by_loops(features_by_hand(model, part.x), part, margin=1.0)
    pairs = sum(alike + unlike) / len(alike + unlike)
    expected = 0.75 * mean_cross_entropy(model, part) + 0.25 * pairs
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)


def test_a_batch_has_as_many_images_of_every_domain() -> None:
    assert ccsa(layout()).sampling == Sampling(outer="domains")


def test_one_source_domain_is_refused(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, data={"target": None, "source": "art"}, method={"name": "ccsa"})
    with pytest.raises(ConfigError, match="'ccsa' needs images of at least 2 source domains"):
        cicf.train(run, out=tmp_path / "run")


@pytest.mark.parametrize(
    "options",
    [
        {"weight": -0.1},
        {"weight": 1.1},
        {"margin": 0.0},
        {"margin": math.inf},
        {"negatives_per_positive": 0.0},
        {"negatives_per_positive": -3.0},
    ],
    ids=str,
)
def test_options_without_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        CcsaConfig(**options)


def test_options_survive_a_file_with_all_pairs() -> None:
    config = CcsaConfig(negatives_per_positive=math.inf)
    assert CcsaConfig.model_validate_json(config.model_dump_json()) == config
