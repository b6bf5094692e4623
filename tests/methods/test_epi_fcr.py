"""Epi-FCR: each term against plain networks put together by hand, and who gets which gradient."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    CLASSES,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    gradients_of,
    layout,
    moved_by,
    pictures,
)
from tests.support.tiny import config as tiny_run
from tests.support.tiny import write_images
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

import cicf
from cicf import ConfigError
from cicf.core import TrainingError
from cicf.core.draw import Draw
from cicf.methods import EpiFcr, EpiFcrConfig
from cicf.models.split import SplitModel
from cicf.models.taps import features_and_logits, head_of
from cicf.training import OptimConfig

AGGREGATE = 1
"""The turn of the network that all domains share."""


def epi_fcr(
    name: str = "digits", *, num_domains: int = 3, **options: object
) -> tuple[EpiFcr, Draw]:
    """Return the method without a warm-up, its networks moved apart, and a draw."""
    data = pictures(num_domains)
    config = EpiFcrConfig.model_validate({"warmup": 0.0, **options})
    method = built(config, layout(name), data)
    assert isinstance(method, EpiFcr)
    torch.manual_seed(4)
    with torch.no_grad():
        for each in method.domain_networks.parameters():
            each.add_(0.1 * torch.randn_like(each))
    return method, draw_for(method, data)


def pair_of(seed: int, num_domains: int = 3) -> tuple[int, int]:
    torch.manual_seed(seed)
    i, j = torch.randperm(num_domains)[:2].tolist()
    return i, j


def entropy(logits: np.ndarray, y: np.ndarray) -> float:
    """Return the mean cross-entropy, sample by sample."""
    total = 0.0
    for row, label in zip(logits, y, strict=True):
        total += np.log(np.exp(row - row.max()).sum()) - (row - row.max())[label]
    return total / len(y)


def numbers(linear: nn.Linear, z: Tensor) -> np.ndarray:
    """Return what a linear layer puts out, by NumPy."""
    weight, bias = linear.weight.detach().numpy(), linear.bias.detach().numpy()
    return np.stack([weight @ row + bias for row in z.detach().numpy()])


def features(model: SplitModel, x: Tensor) -> Tensor:
    """Return what the head of the digits network is given, layer by layer."""
    net = model.network
    return net.flatten(net.block3(net.block2(net.block1(x))))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("seed", [0, 1, 5])
def test_each_term_is_the_loss_of_parts_put_together(seed: int) -> None:
    method, draw = epi_fcr()
    batch, (i, j) = draw.outer, pair_of(seed)
    parts = [batch.domain == k for k in range(3)]
    shared = [features(method.model, batch.x[part]) for part in parts]
    y = [batch.y[part].numpy() for part in parts]
    head, other = head_of(method.model), method.domain_networks[j]
    expected = {
        "cross_entropy": sum(entropy(numbers(head, shared[k]), y[k]) for k in range(3)) / 3,
        "random": sum(entropy(numbers(method.random_head, shared[k]), y[k]) for k in range(3)) / 3,
        "feature": entropy(numbers(head_of(other), shared[i]), y[i]) / 3,
        "head": entropy(numbers(head, features(other, batch.x[parts[i]])), y[i]) / 3,
    }
    expected["loss"] = (
        expected["cross_entropy"]
        + 0.1 * expected["random"]
        + 2.0 * expected["feature"]
        + 0.05 * expected["head"]
    )
    torch.manual_seed(seed)
    found = method.backward(draw)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert float(found[name]) == pytest.approx(value, abs=1e-10)


def whole_loss(method: EpiFcr, draw: Draw, pair: tuple[int, int]) -> Tensor:
    """Return the loss at the parameters as they are, in one graph with nothing frozen."""
    batch, (i, j) = draw.outer, pair
    other, config = method.domain_networks[j], method._config
    mine = batch.domain == i
    loss = torch.zeros(())
    for k in range(3):
        z = features(method.model, batch.x[batch.domain == k])
        y = batch.y[batch.domain == k]
        loss = loss + F.cross_entropy(head_of(method.model)(z), y)
        loss = loss + config.random_weight * F.cross_entropy(method.random_head(z), y)
    z, foreign = features(method.model, batch.x[mine]), features(other, batch.x[mine])
    loss = loss + config.feature_weight * F.cross_entropy(head_of(other)(z), batch.y[mine])
    logits = head_of(method.model)(foreign)
    return (loss + config.head_weight * F.cross_entropy(logits, batch.y[mine])) / 3


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "weights",
    [
        {"feature_weight": 2.0, "head_weight": 0.0, "random_weight": 0.0},
        {"feature_weight": 0.0, "head_weight": 0.5, "random_weight": 0.0},
        {"feature_weight": 0.0, "head_weight": 0.0, "random_weight": 0.3},
        {},
    ],
    ids=["feature", "head", "random", "all"],
)
def test_the_gradient_is_that_of_finite_differences(weights: dict[str, float]) -> None:
    method, draw = epi_fcr(**weights)
    pair = pair_of(2)
    torch.manual_seed(2)
    found = gradients_of(method, draw, turn=AGGREGATE)
    for name, parameter in method.model.named_parameters():
        flat = parameter.data.view(-1)
        for place in range(0, len(flat), max(1, len(flat) // 3)):
            kept = float(flat[place])
            values = []
            for bump in (1e-5, -1e-5):
                flat[place] = kept + bump
                values.append(whole_loss(method, draw, pair).item())
            flat[place] = kept
            slope = (values[0] - values[1]) / 2e-5
            assert float(found[name].flatten()[place]) == pytest.approx(slope, abs=1e-8)


@pytest.mark.usefixtures("float64")
def test_with_all_weights_zero_the_network_is_trained_as_by_erm() -> None:
    method, draw = epi_fcr(feature_weight=0.0, head_weight=0.0, random_weight=0.0)
    found = gradients_of(method, draw, turn=AGGREGATE)
    assert_same(found, cross_entropy_gradients(method.model, draw.outer), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_during_the_warmup_the_network_is_trained_as_by_erm() -> None:
    method, draw = epi_fcr(warmup=0.5)
    found = gradients_of(method, draw, turn=AGGREGATE)
    assert_same(found, cross_entropy_gradients(method.model, draw.outer), atol=1e-12)


def test_features_learn_from_the_foreign_head_and_the_head_from_foreign_features() -> None:
    plain = {"feature_weight": 0.0, "head_weight": 0.0, "random_weight": 0.0}
    base, draw = epi_fcr(**plain)
    usual = gradients_of(base, draw, turn=AGGREGATE)

    def added(**options: float) -> dict[str, float]:
        torch.manual_seed(0)
        method, _ = epi_fcr(**{**plain, **options})
        found = gradients_of(method, draw, turn=AGGREGATE)
        return {name: float((found[name] - usual[name]).abs().max()) for name in usual}

    by_feature, by_head = added(feature_weight=2.0), added(head_weight=0.5)
    heads = {name for name in usual if name.startswith("network.head")}
    for name in usual:
        assert (by_feature[name] > 1e-6) == (name not in heads)
        assert (by_head[name] > 1e-6) == (name in heads)


def test_the_shared_networks_turn_gives_no_gradient_to_what_it_borrows() -> None:
    method, draw = epi_fcr("resnet")
    before = copy.deepcopy(method.state_dict())
    method.turns[AGGREGATE].backward(draw)
    borrowed = [*method.domain_networks.parameters(), *method.random_head.parameters()]
    assert all(each.grad is None for each in borrowed)
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())
    own = set(map(id, method.model.parameters()))
    assert {id(each) for each in method.turns[AGGREGATE].parameters} == own


def test_the_random_head_is_never_trained() -> None:
    method, draw = epi_fcr()
    before = method.random_head.weight.clone()
    moved_by(method, draw, optim=OptimConfig(weight_decay=0.1))
    assert torch.equal(method.random_head.weight, before)
    assert not any(each is method.random_head.weight for each in method.trained)
    assert not torch.equal(method.random_head.weight, head_of(method.model).weight)


@pytest.mark.usefixtures("float64")
def test_each_domain_trains_its_own_network_by_its_own_images() -> None:
    method, draw = epi_fcr()
    method.turns[0].backward(draw)
    assert all(each.grad is None for each in method.model.parameters())
    for k, network in enumerate(method.domain_networks):
        mine = draw.outer.domain == k
        part = draw.outer._replace(x=draw.outer.x[mine], y=draw.outer.y[mine])
        found = {name: p.grad for name, p in network.named_parameters()}
        assert_same(found, cross_entropy_gradients(copy.deepcopy(network), part), atol=1e-12)


def test_domain_networks_start_from_the_network_with_heads_of_their_own() -> None:
    data = pictures(3)
    model = layout()
    method = built(EpiFcrConfig(), model, data)
    assert isinstance(method, EpiFcr)
    heads = [head_of(model).weight, method.random_head.weight]
    for network in method.domain_networks:
        for name, value in model.named_parameters():
            if not name.startswith("network.head"):
                assert torch.equal(network.get_parameter(name), value)
        heads.append(head_of(network).weight)
    assert all(not torch.equal(a, b) for n, a in enumerate(heads) for b in heads[:n])


@pytest.mark.parametrize(
    ("warmup", "steps"), [(500 / 3001, 1), (0.0, 0), (0.5, 6), (1.0, 12)], ids=str
)
def test_the_warmup_is_a_part_of_the_runs_steps(warmup: float, steps: int) -> None:
    # The run that these tests give has 4 epochs of 3 steps.
    method, draw = epi_fcr(warmup=warmup)
    for number in range(12):
        is_exchanging = "feature" in method.backward(draw)
        assert is_exchanging == (number >= steps)
        method.after_step()


def test_pairs_are_ordered_at_random_and_never_of_one_domain() -> None:
    method, draw = epi_fcr(head_weight=0.0, random_weight=0.0)
    found = set()
    for seed in range(30):
        torch.manual_seed(seed)
        found.add(round(float(method.backward(draw)["feature"]), 6))
    assert len(found) == 6


@pytest.mark.usefixtures("float64")
def test_frozen_batch_norm_uses_first_statistics_and_trains_its_weights() -> None:
    method, draw = epi_fcr("resnet", feature_weight=0.0, head_weight=0.0, random_weight=0.0)
    found = gradients_of(method, draw, turn=AGGREGATE)
    frozen = copy.deepcopy(method.model).eval()
    assert_same(found, cross_entropy_gradients(frozen, draw.outer), atol=1e-12)
    assert found["network.bn1.weight"].abs().max() > 0
    moved_by(method, draw)
    for module in (method.model, *method.domain_networks):
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        assert all(int(part.num_batches_tracked) == 0 and part.training for part in norms)


@pytest.mark.usefixtures("float64")
def test_batch_norm_may_be_trained_as_usual() -> None:
    options = {"feature_weight": 0.0, "head_weight": 0.0, "random_weight": 0.0}
    method, draw = epi_fcr("resnet", batch_norm="batch", **options)
    found = gradients_of(method, draw, turn=AGGREGATE)
    expected = cross_entropy_gradients(copy.deepcopy(method.model), draw.outer)
    assert_same(found, expected, atol=1e-12)
    method, draw = epi_fcr("resnet", batch_norm="batch")
    moved_by(method, draw)
    for module in (method.model, *method.domain_networks):
        norms = [part for part in module.modules() if isinstance(part, _BatchNorm)]
        assert all(int(part.num_batches_tracked) == 1 for part in norms)


@pytest.mark.usefixtures("float64")
def test_borrowed_features_are_those_of_a_network_in_use() -> None:
    method, draw = epi_fcr("alexnet", head_weight=1.0)
    i, j = pair_of(3)
    mine = draw.outer.domain == i
    other = copy.deepcopy(method.domain_networks[j]).eval()
    z = features_and_logits(other, draw.outer.x[mine]).features
    expected = entropy(numbers(head_of(method.model), z), draw.outer.y[mine].numpy()) / 3
    # Dropout of the shared network draws first; without it, the pair is the first that is drawn.
    for part in method.model.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    torch.manual_seed(3)
    assert float(method.backward(draw)["head"]) == pytest.approx(expected, abs=1e-10)
    assert all(part.training for part in method.domain_networks[j].modules())


def test_domains_may_have_gaps_and_lack_a_class() -> None:
    data = pictures(3)
    places = ((data.domain != 1) & ~((data.domain == 2) & (data.y == 0))).nonzero()[:, 0]
    part = data.subset(places)
    method = built(EpiFcrConfig(warmup=0.0), layout(), part)
    draw = draw_for(method, part)
    assert set(draw.outer.domain.tolist()) == {0, 2}
    assert moved_by(method, draw).isfinite().all()


def test_a_head_without_bias_is_taken() -> None:
    model = layout()
    model.network.head = nn.Linear(16, CLASSES, bias=False)
    data = pictures(3)
    method = built(EpiFcrConfig(warmup=0.0), model, data)
    assert moved_by(method, draw_for(method, data)).norm() > 0


def test_a_gradient_that_is_not_finite_stops_the_step_whichever_turn_it_is_of() -> None:
    method, draw = epi_fcr()
    with torch.no_grad():
        head_of(method.domain_networks[1]).weight.fill_(float("nan"))
    before = [parameter.clone() for parameter in method.model.parameters()]
    with pytest.raises(TrainingError, match="gradient norm domains is nan in step 1"):
        moved_by(method, draw)
    after = method.model.parameters()
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_one_domain_is_too_few(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, method={"name": "epi_fcr"}, data={"target": None, "source": "art"})
    with pytest.raises(ConfigError, match="at least 2 source domains"):
        cicf.train(run, out=tmp_path / "run")


@pytest.mark.parametrize(
    "options",
    [
        {"feature_weight": -1.0},
        {"head_weight": -1.0},
        {"random_weight": -1.0},
        {"warmup": 1.5},
        {"batch_norm": "running"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        EpiFcrConfig.model_validate(options)
