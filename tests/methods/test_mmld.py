"""MMLD: its three terms, its clusters of styles, and what it keeps from one epoch to the next."""

import copy
import itertools
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    CLASSES,
    TRANSFORM,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    given_for,
    gradients_of,
    layout,
    moved_by,
    pictures,
    samples,
)
from tests.support.unrolled import unrolled_gradients
from torch import Tensor, nn

from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Evaluated
from cicf.methods import CicfConfig, Mmld, MmldConfig
from cicf.methods.mmld import (
    channel_style,
    cluster_weights,
    clustered,
    entropy,
    renumbered,
    style_layers,
    styles_of,
)
from cicf.models import build_model
from cicf.models.split import SplitModel

WHOLE = pictures(3)
DATA = WHOLE.subset(((WHOLE.y > 0) | (torch.arange(len(WHOLE)) % 4 == 0)).nonzero()[:, 0])
"""With fewer images of one class, so that clusters differ in size."""
SMALL = {"width": 6, "dropout": 0.0}


def halfway(config: MmldConfig, model: SplitModel | None = None, *, epoch: int = 2) -> Mmld:
    """Return the method before an epoch of four, by default when λ(1/2) = 0.99."""
    method = built(config, model or layout(), DATA)
    assert isinstance(method, Mmld)
    method.before_epoch(epoch, Evaluated(DATA, TRANSFORM))
    return method


def probabilities(logits: Tensor) -> np.ndarray:
    shifted = np.exp(logits.detach().numpy())
    normed: np.ndarray = shifted / shifted.sum(axis=1, keepdims=True)
    return normed


def terms_by_loops(method: Mmld, batch: Samples) -> list[tuple[float, float, float]]:
    """Return cross-entropy, weighted cross-entropy of the cluster, and entropy of each sample."""
    network = method.model.network
    features = network.flatten(network.block3(network.block2(network.block1(batch.x))))
    told = probabilities(method.discriminator(features))
    found = probabilities(network.head(features))
    sizes = [int((method.clusters == k).sum()) for k in range(3)]
    assert len(set(sizes)) > 1
    terms = []
    for i, (y, place) in enumerate(zip(batch.y.tolist(), batch.place.tolist(), strict=True)):
        k = int(method.clusters[place])
        weight = sum(sizes) / (3 * sizes[k])
        h = -sum(p * math.log(p) for p in found[i])
        terms.append((-math.log(found[i, y]), -weight * math.log(told[i, k]), h))
    return terms


@pytest.mark.usefixtures("float64")
def test_the_loss_of_a_sample_is_the_sum_of_its_three_terms() -> None:
    method, batch = halfway(MmldConfig(entropy=0.3, **SMALL)), samples(DATA)
    strength = 2 / (1 + math.exp(-5)) - 1
    expected = [a + b + 0.3 * strength * c for a, b, c in terms_by_loops(method, batch)]
    found = method.loss(method.model, batch).detach()
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_the_network_gets_the_gradient_of_the_discriminator_with_the_opposite_sign() -> None:
    method = halfway(MmldConfig(reversal=0.6, entropy=0.3, **SMALL))
    batch, strength = samples(DATA), 2 / (1 + math.exp(-5)) - 1
    parameters = list(method.model.parameters())

    def gradients(term: int) -> list[Tensor]:
        """Return those of one term by central differences."""
        found = []
        for parameter in parameters:
            slope = torch.zeros(parameter.numel())
            for place in range(min(3, parameter.numel())):
                ends = []
                for step in (1e-5, -1e-5):
                    with torch.no_grad():
                        parameter.view(-1)[place] += step
                        ends.append(np.mean([t[term] for t in terms_by_loops(method, batch)]))
                        parameter.view(-1)[place] -= step
                slope[place] = (ends[0] - ends[1]) / 2e-5
            found.append(slope)
        return found

    by_term = [gradients(term) for term in range(3)]
    found = gradients_of(method, Draw(batch, None))
    for value, a, b, c in zip(found.values(), *by_term, strict=True):
        expected = a - 0.6 * strength * b + 0.3 * strength * c
        torch.testing.assert_close(value.flatten()[:3], expected[:3], rtol=0, atol=1e-8)


@pytest.mark.usefixtures("float64")
def test_the_discriminator_gets_its_own_gradient_as_it_is() -> None:
    method, batch = halfway(MmldConfig(reversal=0.6, **SMALL)), samples(DATA)
    weight = method.discriminator[0].weight
    method.zero_grad()
    method.backward(Draw(batch, None))
    found = weight.grad.clone()
    for place in range(4):
        ends = []
        for step in (1e-5, -1e-5):
            with torch.no_grad():
                weight.view(-1)[place] += step
                ends.append(np.mean([t[1] for t in terms_by_loops(method, batch)]))
                weight.view(-1)[place] -= step
        assert float(found.view(-1)[place]) == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-8)


@pytest.mark.usefixtures("float64")
def test_with_both_weights_0_the_network_is_trained_by_the_cross_entropy() -> None:
    method = halfway(MmldConfig(reversal=0, entropy=0))
    draw = draw_for(method, DATA)
    expected = cross_entropy_gradients(method.model, draw.outer)
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("options", [{"reversal": 0}, {"entropy": 0}], ids=str)
def test_one_weight_of_0_leaves_the_other_term(options: Mapping[str, float]) -> None:
    method = halfway(MmldConfig(**options))
    draw = draw_for(method, DATA)
    expected = cross_entropy_gradients(method.model, draw.outer)
    found = gradients_of(method, draw)
    assert max(float((found[name] - expected[name]).abs().max()) for name in found) > 1e-4


@pytest.mark.usefixtures("float64")
def test_the_first_epoch_trains_the_network_by_the_cross_entropy() -> None:
    method = halfway(MmldConfig(), epoch=0)
    draw = draw_for(method, DATA)
    expected = cross_entropy_gradients(method.model, draw.outer)
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.parametrize(("epoch", "p"), [(0, 0), (1, 0.25), (3, 0.75)])
def test_the_strength_grows_with_the_part_of_the_epochs_that_are_over(epoch: int, p: float) -> None:
    method = halfway(MmldConfig(), epoch=epoch)
    assert float(method.progress) == pytest.approx(2 / (1 + math.exp(-10 * p)) - 1, abs=1e-6)


def test_a_sample_has_the_loss_that_it_has_alone() -> None:
    method, batch = halfway(MmldConfig(dropout=0.0)), samples(DATA)
    whole = method.loss(method.model, batch)
    alone = method.loss(method.model, Samples(*(field[7:8] for field in batch)))
    torch.testing.assert_close(whole[7:8], alone)


@pytest.mark.usefixtures("float64")
def test_the_entropy_is_that_of_the_definition() -> None:
    logits = torch.tensor([[0.0, 0.0, 0.0], [50.0, 0.0, 0.0], [1.0, 2.0, 3.0]])
    found = entropy(logits)
    assert float(found[0]) == pytest.approx(math.log(3), abs=1e-12)
    assert float(found[1]) == pytest.approx(0, abs=1e-12)
    p = probabilities(logits)[2]
    assert float(found[2]) == pytest.approx(-float((p * np.log(p)).sum()), abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_style_is_the_mean_and_the_deviation_of_every_channel() -> None:
    maps = torch.randn(2, 3, 4, 5)
    rows = maps.numpy().reshape(2, 3, 20)
    deviation = np.sqrt(rows.var(axis=2, ddof=1) + 1e-5)
    expected = np.concatenate([rows.mean(axis=2), deviation], axis=1)
    torch.testing.assert_close(channel_style(maps), torch.from_numpy(expected), rtol=0, atol=1e-10)


def test_a_map_of_one_place_has_a_style() -> None:
    found = channel_style(torch.randn(2, 3, 1, 1))
    assert found.isfinite().all()


def test_styles_are_read_from_two_maps_in_evaluation_mode() -> None:
    model = layout("resnet").train()
    before = copy.deepcopy(model.state_dict())
    found = styles_of(model, Evaluated(DATA, TRANSFORM), ("layer1", "layer2"))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.network.layer1.training
    network = model.eval().network
    with torch.no_grad():
        x = network.maxpool(network.relu(network.bn1(network.conv1(samples(DATA).x))))
        first = network.layer1(x)
        expected = [channel_style(each) for each in (first, network.layer2(first))]
    torch.testing.assert_close(found, torch.cat(expected, dim=1))


def test_a_style_is_read_before_the_next_layer_works_in_place() -> None:
    network = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(4 * 14 * 14, CLASSES)
    )
    model = SplitModel(network, cut="input", before=())
    found = styles_of(model, Evaluated(DATA, TRANSFORM), ("0",))
    with torch.no_grad():
        torch.testing.assert_close(found, channel_style(network[0](samples(DATA).x)))


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("resnet18", ("layer1", "layer2")),
        ("alexnet", ("features.4", "features.7")),
        ("digits_cnn", ("block1", "block2")),
    ],
)
def test_styles_are_read_where_the_authors_read_them(name: str, layers: tuple[str, ...]) -> None:
    assert style_layers(build_model(name, num_classes=2), ()) == layers


def test_another_network_is_read_after_its_first_two_stages() -> None:
    assert style_layers(layout("alexnet"), ()) == ("features.2", "features.5")


def test_layers_may_be_named() -> None:
    assert style_layers(layout("resnet"), ("layer3",)) == ("layer3",)


def test_clusters_are_those_of_styles_that_lie_apart() -> None:
    truth = torch.arange(60) % 3
    styles = torch.randn(60, 8, generator=torch.Generator().manual_seed(1)) + 20 * truth[:, None]
    found = clustered(styles, 3, 256, seed=5)
    pairs = set(zip(truth.tolist(), found.tolist(), strict=True))
    assert len(pairs) == 3
    assert len({k for _, k in pairs}) == 3


def test_principal_components_that_are_left_out_do_not_count() -> None:
    stream = torch.Generator().manual_seed(1)
    large, small = torch.arange(80) % 2, torch.arange(80) // 2 % 2
    styles = torch.stack([100.0 * large, 1.0 * small], dim=1)
    styles += 0.01 * torch.randn(80, 2, generator=stream)
    found = clustered(styles[large == 0], 2, 1, seed=0)
    assert len(set(zip(small[large == 0].tolist(), found.tolist(), strict=True))) == 2
    by_first = clustered(styles, 2, 1, seed=0)
    assert len(set(zip(large.tolist(), by_first.tolist(), strict=True))) == 2


@pytest.mark.parametrize("seed", range(5))
def test_clusters_keep_the_numbers_under_which_most_images_are_known(seed: int) -> None:
    stream = torch.Generator().manual_seed(seed)
    found, before = (torch.randint(4, (40,), generator=stream) for _ in range(2))
    kept = int((renumbered(found, before, 4) == before).sum())
    every = itertools.permutations(range(4))
    assert kept == max(int((torch.tensor(p)[found] == before).sum()) for p in every)


def test_numbers_are_only_exchanged() -> None:
    found = torch.tensor([0, 0, 1, 1, 2])
    new = renumbered(found, torch.tensor([2, 2, 0, 0, 0]), 3)
    assert new.tolist() == [2, 2, 0, 0, 1]


def test_a_cluster_weighs_as_much_as_another_whatever_its_size() -> None:
    clusters = torch.tensor([0, 0, 0, 1, 2, 2])
    each = cluster_weights(clusters, 3)[clusters]
    assert [float(each[clusters == k].sum()) for k in range(3)] == pytest.approx([2, 2, 2])
    assert float(each.mean()) == pytest.approx(1)


def test_a_cluster_without_images_weighs_nothing() -> None:
    weights = cluster_weights(torch.tensor([0, 0, 2]), 4)
    assert weights.tolist() == pytest.approx([0.75, 0, 1.5, 0])


def test_fewer_different_images_than_clusters_are_no_problem() -> None:
    few = pictures(1, per_class=1)
    images = few.images[:1].expand(3, -1, -1, -1)
    alike = DomainDataset(images, few.y, few.domain, few.classes, few.domains)
    method = built(MmldConfig(), layout(), alike)
    assert moved_by(method, draw_for(method, alike, outer=3)).isfinite().all()


def test_clusters_stay_for_as_many_epochs_as_asked_for() -> None:
    method = halfway(MmldConfig(every=3), epoch=0)
    before = method.clusters.clone()
    with torch.no_grad():
        for parameter in method.model.parameters():
            parameter.normal_()
    for epoch, stays in ((1, True), (2, True), (3, False)):
        method.before_epoch(epoch, Evaluated(DATA, TRANSFORM))
        assert torch.equal(method.clusters, before) is stays


def test_each_image_is_in_the_cluster_of_its_style() -> None:
    noise = torch.randint(20, DATA.images.shape, dtype=torch.uint8)
    styled = noise + (80 * DATA.domain)[:, None, None, None].to(torch.uint8)
    data = DomainDataset(styled, DATA.y, DATA.domain, DATA.classes, DATA.domains)
    method = built(MmldConfig(), layout(), data)
    pairs = set(zip(DATA.domain.tolist(), method.clusters.tolist(), strict=True))
    assert len(pairs) == len({k for _, k in pairs}) == 3


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("order", [1, 2])
def test_inside_of_cicf_it_is_what_autograd_makes_of_the_unrolled_step(order: int) -> None:
    config = CicfConfig(
        base=MmldConfig(**SMALL), alpha=0.2, order=order, max_step_ratio=math.inf, chunk=None
    )
    method = built(config, layout(), DATA)
    method.before_epoch(2, Evaluated(DATA, TRANSFORM))
    draw, model, base = draw_for(method, DATA), method.model, method.base
    expected = unrolled_gradients(model, draw.inner, draw.outer, loss=base, alpha=0.2, order=order)
    method.backward(draw)
    named = {f"loss.{name}": p for name, p in base.named_parameters()}
    named |= dict(model.named_parameters())
    assert named.keys() == expected.keys()
    for name, parameter in named.items():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=0, atol=1e-10)


def test_gradients_add_up_and_nothing_else_changes() -> None:
    method = halfway(MmldConfig(dropout=0.0))
    draw, before = draw_for(method, DATA), copy.deepcopy(method.state_dict())
    once = gradients_of(method, draw)
    method.backward(draw)
    twice = dict(method.model.named_parameters())
    assert all(torch.equal(twice[name].grad, 2 * value) for name, value in once.items())
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())


def test_a_layer_that_is_none_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match=r"method.layers='layer9' is no module of the network"):
        MmldConfig(layers=("layer9",)).build(given_for(layout("resnet"), DATA))


def test_a_layer_without_maps_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="'flatten' puts out no map"):
        built(MmldConfig(layers=("flatten",)), layout(), DATA)


@pytest.mark.parametrize(
    "options",
    [{"clusters": 1}, {"every": 0}, {"dropout": 1.0}, {"reversal": -1.0}, {"entropy": -0.1}],
    ids=lambda options: next(iter(options)),
)
def test_options_without_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MmldConfig.model_validate(options)


def test_the_discriminator_has_the_units_and_the_clusters_asked_for() -> None:
    method = MmldConfig(width=7, clusters=5, dropout=0.2).build(given_for(layout(), DATA))
    linear = [each for each in method.discriminator if isinstance(each, nn.Linear)]
    assert [(each.in_features, each.out_features) for each in linear] == [(16, 7), (7, 7), (7, 5)]
    assert [each.p for each in method.discriminator if isinstance(each, nn.Dropout)] == [0.2, 0.2]
    assert F.softmax(method.discriminator(torch.zeros(1, 16)), 1).shape == (1, 5)
