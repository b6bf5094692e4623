"""RSC against loops in NumPy that make the same draws."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.composed import gap_inside_cicf
from tests.support.methods import (
    CLASSES,
    LAYOUTS,
    SIDE,
    TRANSFORM,
    given_for,
    gradients_of,
    layout,
    pictures,
    samples,
)
from tests.support.slopes import assert_slopes
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.loader import Evaluated
from cicf.methods import CicfConfig, Rsc, RscConfig
from cicf.methods.rsc import highest, hurt_most
from cicf.models import SplitModel


def batch_of(size: int = 12, *, seed: int = 0) -> Samples:
    data = pictures(3)
    places = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:size]
    return samples(data, places)


def method_at(epoch: int, model: SplitModel, **options: object) -> Rsc:
    method = RscConfig(**options).build(given_for(model, pictures(3)))
    method.before_epoch(epoch, Evaluated(pictures(3), TRANSFORM))
    model.train()
    return method


def last_map(model: SplitModel, x: Tensor) -> Tensor:
    """Return the last map of a small network, in the mode that it is in."""
    net = model.network
    if hasattr(net, "block1"):
        return net.block3(net.block2(net.block1(x)))
    z = net.maxpool(net.relu(net.bn1(net.conv1(x))))
    return net.layer4(net.layer3(net.layer2(net.layer1(z))))


def tail_weights(model: SplitModel, shape: torch.Size) -> np.ndarray:
    """Return the logits' derivative with respect to the last map, one map for each class.

    The tail is flattening and a linear layer, or the mean over places and a linear layer.
    """
    _, c, h, w = shape
    if hasattr(model.network, "head"):
        return model.network.head.weight.detach().numpy().reshape(CLASSES, c, h, w)
    rows = model.network.fc.weight.detach().numpy()
    return np.broadcast_to(rows[:, :, None, None] / (h * w), (CLASSES, c, h, w))


def tail_bias(model: SplitModel) -> np.ndarray:
    head = model.network.head if hasattr(model.network, "head") else model.network.fc
    return head.bias.detach().numpy()


def logits_by_hand(z: np.ndarray, weights: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return np.array([[(row * one).sum() for row in weights] + bias for one in z])


def softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def mean_cross_entropy(logits: np.ndarray, y: list[int]) -> float:
    return float(
        np.mean([-np.log(row[label]) for row, label in zip(softmax(logits), y, strict=True)])
    )


def mask_by_hand(
    z: np.ndarray,
    y: list[int],
    weights: np.ndarray,
    bias: np.ndarray,
    by_position: bool,
    share: float,
) -> np.ndarray:
    """Return what is kept of each map, image by image, as the authors' code has it."""
    n, c, h, w = z.shape
    mask = np.ones(z.shape)
    for i in range(n):
        channel = np.array([weights[y[i], k].mean() for k in range(c)])
        if by_position:
            score = sum(channel[k] * z[i, k] for k in range(c))
            go = sorted(np.ndindex(h, w), key=lambda at: -score[at])[: math.ceil(h * w / 3)]
            for at in go:
                mask[(i, slice(None), *at)] = 0
        else:
            mask[i, np.argsort(-channel)[: math.ceil(c / 3.2)]] = 0
    before, after = (softmax(logits_by_hand(each, weights, bias)) for each in (z, z * mask))
    fall = [max(0.0, before[i, y[i]] - after[i, y[i]] - 1e-4) for i in range(n)]
    worst = sorted(range(n), key=lambda i: -fall[i])[: round(n * share)]
    for i in range(n):
        if i not in worst or fall[i] == 0:
            mask[i] = 1
    return mask


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("epoch", [0, 25])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("backbone", ["digits", "resnet"])
def test_the_loss_of_masked_maps_is_what_loops_give(backbone: str, seed: int, epoch: int) -> None:
    model, batch = layout(backbone), batch_of(seed=seed)
    method = method_at(epoch, model)
    # A copy, since the forward of the step has to be the only one that moves statistics.
    z = last_map(copy.deepcopy(model), batch.x).detach().numpy()
    weights, bias, y = tail_weights(model, z.shape), tail_bias(model), batch.y.tolist()
    torch.manual_seed(seed)
    by_position = float(torch.rand(())) < 0.5
    mask = mask_by_hand(z, y, weights, bias, by_position, {0: 0.3, 25: 0.7}[epoch])
    expected = mean_cross_entropy(logits_by_hand(z * mask, weights, bias), y)
    torch.manual_seed(seed)
    found = method.loss(model, batch)
    assert found.shape == ()
    assert float(found.detach()) == pytest.approx(expected, abs=1e-10)
    assert expected > mean_cross_entropy(logits_by_hand(z, weights, bias), y)


def test_those_seeds_mask_places_as_well_as_channels() -> None:
    coins = set()
    for seed in range(4):
        torch.manual_seed(seed)
        coins.add(float(torch.rand(())) < 0.5)
    assert coins == {True, False}


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("seed", [0, 1])
def test_the_gradient_is_that_of_differences_with_the_mask_held_fixed(seed: int) -> None:
    model, batch = layout(), batch_of()
    method = method_at(0, model)
    z = last_map(model, batch.x).detach().numpy()
    torch.manual_seed(seed)
    by_position = float(torch.rand(())) < 0.5
    y = batch.y.tolist()
    mask = mask_by_hand(z, y, tail_weights(model, z.shape), tail_bias(model), by_position, 0.3)
    torch.manual_seed(seed)
    found = gradients_of(method, Draw(batch, None))

    def loss() -> float:
        masked = last_map(model, batch.x).detach().numpy() * mask
        logits = logits_by_hand(masked, tail_weights(model, z.shape), tail_bias(model))
        return mean_cross_entropy(logits, y)

    assert_slopes(loss, list(model.parameters()), list(found.values()))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("parts", [(1 / 3, 1 / 3), (0.2, 0.6)])
@pytest.mark.parametrize("seed", range(3))
def test_the_loss_of_masked_features_is_what_percentiles_give(
    seed: int, parts: tuple[float, float]
) -> None:
    model, batch = layout(), batch_of(seed=seed)
    method = method_at(0, model, variant="pooled", features=parts[0], samples=parts[1])
    features = last_map(model, batch.x).flatten(1).detach().numpy()
    rows, bias = model.network.head.weight.detach().numpy(), tail_bias(model)
    y, n = batch.y.tolist(), len(batch.y)
    mask = np.ones(features.shape)
    for i in range(n):
        mask[i] = rows[y[i]] < np.percentile(rows[y[i]], 100 * (1 - parts[0]))
    before, after = (softmax(each @ rows.T + bias) for each in (features, features * mask))
    fall = np.array([before[i, y[i]] - after[i, y[i]] for i in range(n)])
    mask[fall < np.percentile(fall, 100 * (1 - parts[1]))] = 1
    expected = mean_cross_entropy((features * mask) @ rows.T + bias, y)
    found = method.loss(model, batch)
    assert found.shape == ()
    assert float(found.detach()) == pytest.approx(expected, abs=1e-10)
    assert 0 < (mask == 0).sum() < mask.size


@pytest.mark.usefixtures("float64")
def test_the_gradient_of_masked_features_is_that_of_differences() -> None:
    model, batch = layout(), batch_of()
    method = method_at(0, model, variant="pooled")
    found = gradients_of(method, Draw(batch, None))
    # So short a step changes no mask.
    assert_slopes(lambda: method.loss(model, batch), list(model.parameters()), list(found.values()))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", ["map", "pooled"])
def test_a_batch_may_lack_a_class_and_be_of_one_domain(variant: str) -> None:
    model, batch = layout(), batch_of(30)
    keeps = (batch.y != 1) & (batch.domain == 0)
    batch = Samples(*(field[keeps] for field in batch))
    found = method_at(0, model, variant=variant).loss(model, batch)
    assert len(batch.y) > 2
    assert found > F.cross_entropy(model(batch.x), batch.y)


@pytest.mark.parametrize("backbone", LAYOUTS)
@pytest.mark.parametrize("variant", ["map", "pooled"])
def test_a_loss_leaves_gradients_modes_and_hooks_as_they_were(variant: str, backbone: str) -> None:
    model, batch = layout(backbone), batch_of()
    method = method_at(0, model, variant=variant)
    frozen = next(part for part in model.modules() if isinstance(part, nn.Conv2d))
    frozen.eval()
    modes = [part.training for part in model.modules()]
    parameters = copy.deepcopy(dict(model.named_parameters()))
    method.loss(model, batch)
    assert [part.training for part in model.modules()] == modes
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(parameters[name], p) for name, p in model.named_parameters())
    assert not any(part._forward_hooks for part in model.modules())
    assert not list(method.parameters())


@pytest.mark.usefixtures("float64")
def test_statistics_move_as_by_one_plain_forward() -> None:
    model, batch = layout("resnet"), batch_of()
    plain = copy.deepcopy(model).train()
    plain(batch.x)
    method_at(0, model).loss(model, batch)
    # Nothing is masked before the last of them.
    for found, expected in zip(model.modules(), plain.modules(), strict=True):
        if isinstance(found, _BatchNorm):
            assert found.num_batches_tracked == 1
            torch.testing.assert_close(found.running_mean, expected.running_mean)
            torch.testing.assert_close(found.running_var, expected.running_var)


def test_the_mask_is_found_without_dropout() -> None:
    model, batch = layout("alexnet"), batch_of()
    method = method_at(0, model)
    torch.manual_seed(4)
    method.loss(model, batch)
    after = torch.get_rng_state()
    torch.manual_seed(4)
    torch.rand(())
    model(batch.x)
    assert torch.equal(torch.get_rng_state(), after)


class Past(nn.Module):
    """Has a way past its last map, so that one image does not stand for all."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 5, stride=5), nn.Linear(7, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat([self.conv(x).mean((2, 3)), x.mean((2, 3))], 1))
        return logits


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("seed", range(4))
def test_what_goes_past_the_map_is_taken_along(seed: int) -> None:
    torch.manual_seed(0)
    network = Past()
    model, batch = SplitModel(network, cut="input", before=()), batch_of()
    method = method_at(0, model)
    z, y = network.conv(batch.x).detach().numpy(), batch.y.tolist()
    rows, bias = network.head.weight.detach().numpy(), network.head.bias.detach().numpy()
    past = batch.x.mean((2, 3)).numpy() @ rows[:, 4:].T

    def logits(maps: np.ndarray) -> np.ndarray:
        return maps.mean((2, 3)) @ rows[:, :4].T + past + bias

    torch.manual_seed(seed)
    by_position = float(torch.rand(())) < 0.5
    mask = np.ones(z.shape)
    for i, label in enumerate(y):
        channel = rows[label, :4] / 9
        if by_position:
            score = np.tensordot(channel, z[i], 1)
            for at in sorted(np.ndindex(3, 3), key=lambda at: -score[at])[:3]:
                mask[(i, slice(None), *at)] = 0
        else:
            mask[i, np.argsort(-channel)[:2]] = 0
    before, after = softmax(logits(z)), softmax(logits(z * mask))
    fall = [before[i, label] - after[i, label] for i, label in enumerate(y)]
    worst = sorted(range(len(y)), key=lambda i: -fall[i])[:4]
    mask[[i for i in range(len(y)) if i not in worst or fall[i] <= 1e-4]] = 1
    torch.manual_seed(seed)
    found = float(method.loss(model, batch).detach())
    assert found == pytest.approx(mean_cross_entropy(logits(z * mask), y), abs=1e-10)


class Rectified(nn.Module):
    """Works on its last map, in place or not."""

    def __init__(self, is_in_place: bool) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 5, stride=5), nn.Linear(8, CLASSES)
        self.is_in_place = is_in_place

    def forward(self, x: Tensor) -> Tensor:
        z = F.relu(self.conv(x), inplace=self.is_in_place)
        logits: Tensor = self.head(z.mean((2, 3)))
        return logits


@pytest.mark.parametrize("seed", range(4))
def test_a_network_may_work_on_its_last_map_in_place(seed: int) -> None:
    losses = []
    for is_in_place in (True, False):
        torch.manual_seed(0)
        model = SplitModel(Rectified(is_in_place), cut="input", before=())
        method = method_at(0, model)
        torch.manual_seed(seed)
        losses.append(method.loss(model, batch_of()))
    assert torch.equal(*losses)


@pytest.mark.parametrize(
    ("epoch", "share"), [(0, 0.3), (9, 0.3), (10, 0.5), (29, 0.7), (30, 0.9), (40, 1.0), (200, 1.0)]
)
def test_the_share_grows_every_ten_epochs_up_to_the_whole_batch(epoch: int, share: float) -> None:
    assert RscConfig().share_at(epoch) == pytest.approx(share)


def test_the_growth_of_the_share_can_be_chosen() -> None:
    config = RscConfig(share=0.1, share_growth=0.05, share_every=2)
    assert config.share_at(7) == pytest.approx(0.25)


def test_the_epoch_is_part_of_the_state_also_inside_cicf() -> None:
    given = given_for(layout(), pictures(3))
    config = CicfConfig(base=RscConfig(share_every=1))
    first, second = config.build(given), config.build(given)
    first.before_epoch(2, Evaluated(pictures(3), TRANSFORM))
    second.load_state_dict(first.state_dict())
    batch = batch_of()
    losses = []
    for method in (first, second, config.build(given)):
        torch.manual_seed(0)
        losses.append(method.base.loss(given.model.train(), batch))
    assert losses[0] == losses[1] != losses[2]


@pytest.mark.parametrize("part", [0.01, 1 / 3, 1 / 3.2, 0.5, 0.99])
@pytest.mark.parametrize("k", [2, 3, 9, 16, 49])
def test_the_highest_are_a_part_rounded_up_but_never_all(k: int, part: float) -> None:
    values = torch.stack([torch.randperm(k).double() for _ in range(3)])
    found = highest(values, part)
    count = min(math.ceil(k * part), k - 1)
    assert torch.equal(found, values >= k - count)


def test_values_as_high_as_the_first_that_stays_stay_too() -> None:
    values = torch.tensor([[5.0, 4.0, 4.0, 1.0, 0.0, 0.0], [2.0] * 6])
    assert highest(values, 1 / 3).tolist() == [[True] + [False] * 5, [False] * 6]


@pytest.mark.parametrize(
    ("share", "expected"), [(0.0, 0), (0.2, 1), (0.4, 2), (0.6, 3), (0.8, 3), (1.0, 3)]
)
def test_only_a_share_is_masked_and_only_where_the_probability_falls(
    share: float, expected: int
) -> None:
    fall = torch.tensor([0.3, -0.2, 0.5, 1e-5, 0.1])
    found = hurt_most(fall, share)
    assert found.nonzero()[:, 0].tolist() == sorted([2, 0, 4][:expected])


def test_the_layer_can_be_named() -> None:
    assert method_at(0, layout("resnet")).layer == "layer4"
    assert method_at(0, layout("resnet"), layer="layer2").layer == "layer2"


@pytest.mark.parametrize("layer", ["layre4", "avgpool", "fc"])
def test_a_layer_without_a_map_is_refused(layer: str) -> None:
    with pytest.raises(ConfigError, match=f"method.layer='{layer}' does not put out one map"):
        method_at(0, layout("resnet"), layer=layer)


def test_a_network_without_maps_is_refused_except_for_its_features() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, CLASSES))
    model = SplitModel(network, cut="input", before=())
    with pytest.raises(ConfigError, match="puts out no map of two places or more"):
        method_at(0, model)
    assert method_at(0, model, variant="pooled").loss(model, batch_of()).isfinite()


@pytest.mark.parametrize(
    "options",
    [{"variant": "both"}, {"positions": 1.0}, {"share": 1.2}, {"share_every": 0}, {"samples": 0}],
    ids=str,
)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        RscConfig.model_validate(options)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", ["map", "pooled"])
@pytest.mark.parametrize("backbone", LAYOUTS)
def test_inside_cicf_it_has_the_gradient_of_unrolled_autograd(backbone: str, variant: str) -> None:
    base = RscConfig(variant=variant, share=0.6)
    assert gap_inside_cicf(base, layout(backbone), pictures(3)) < 1e-10
