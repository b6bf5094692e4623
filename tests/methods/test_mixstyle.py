"""MixStyle against loops in NumPy that make the same draws."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.composed import gap_inside_cicf
from tests.support.methods import (
    LAYOUTS,
    SIDE,
    built,
    draw_for,
    given_for,
    gradients_of,
    layout,
    pictures,
    samples,
)
from tests.support.slopes import assert_slopes
from torch import Tensor, nn

from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.sampling import Sampling
from cicf.methods import CicfConfig, MixStyleConfig
from cicf.methods.mixstyle import mixed_layers, partners_of_other_domains
from cicf.models import SplitModel, build_model

BLOCKS = ("block1", "block2", "block3")
MIXED = ("block1", "block2")
"""What is mixed by default on `layout()`."""


def batch_of(*, num_domains: int = 3, size: int = 10, seed: int = 0) -> Samples:
    """Return images of all domains in no order, the domains numbered with a gap."""
    data = pictures(num_domains)
    places = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:size]
    batch = samples(data, places)
    return batch._replace(domain=batch.domain * 2 + 1)


def styles(z: Tensor) -> tuple[np.ndarray, np.ndarray]:
    values = z.detach().numpy()
    return values.mean((2, 3)), np.sqrt(values.var((2, 3), ddof=1) + 1e-6)


def mixture(z: Tensor, partner: list[int], share: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return the factor and the summand that give each channel its new style."""
    mean, std = styles(z)
    factor, summand = np.zeros_like(mean), np.zeros_like(mean)
    for i, (j, own) in enumerate(zip(partner, share, strict=True)):
        for c in range(mean.shape[1]):
            factor[i, c] = (own * std[i, c] + (1 - own) * std[j, c]) / std[i, c]
            new_mean = own * mean[i, c] + (1 - own) * mean[j, c]
            summand[i, c] = new_mean - factor[i, c] * mean[i, c]
    return factor, summand


def drawn(
    model: SplitModel, batch: Samples, *, p: float = 0.5, alpha: float = 0.1, crosses: bool = False
) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what the random state makes of each layer, by drawing what the method has to draw."""
    found = {}
    z = batch.x
    for name in BLOCKS:
        z = getattr(model.network, name)(z)
        if name not in MIXED or float(torch.rand(())) >= p:
            continue
        share = torch.distributions.Beta(alpha, alpha).sample((len(z),)).tolist()
        if crosses:
            partner = partners_of_other_domains(batch.domain).tolist()
        else:
            partner = torch.randperm(len(z)).tolist()
        factor, summand = map(torch.from_numpy, mixture(z, partner, share))
        found[name] = factor[:, :, None, None], summand[:, :, None, None]
        z = found[name][0] * z + found[name][1]
    return found


def loss_with(
    model: SplitModel, batch: Samples, styled: dict[str, tuple[Tensor, Tensor]]
) -> Tensor:
    """Return the mean cross-entropy when the maps of some layers are scaled and shifted."""
    z = batch.x
    for name in BLOCKS:
        z = getattr(model.network, name)(z)
        if name in styled:
            z = styled[name][0] * z + styled[name][1]
    logits = model.network.head(z.flatten(1)).detach().numpy()
    terms = [
        np.log(np.exp(row).sum()) - row[y] for row, y in zip(logits, batch.y.tolist(), strict=True)
    ]
    return torch.tensor(float(np.mean(terms)))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", ["random", "crossdomain"])
@pytest.mark.parametrize("seed", range(8))
def test_the_loss_is_what_loops_with_the_same_draws_give(seed: int, variant: str) -> None:
    model, batch = layout().train(), batch_of(size=11, seed=seed)
    config = MixStyleConfig(p=0.5, alpha=0.4, variant=variant)
    method = config.build(given_for(model, pictures(3)))
    torch.manual_seed(seed)
    styled = drawn(model, batch, p=0.5, alpha=0.4, crosses=variant == "crossdomain")
    torch.manual_seed(seed)
    found = method.loss(model, batch)
    assert found.shape == ()
    torch.testing.assert_close(found, loss_with(model, batch, styled), rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_those_draws_mix_none_one_and_both_of_the_layers() -> None:
    model, batch = layout(), batch_of()
    cases = set()
    for seed in range(8):
        torch.manual_seed(seed)
        cases.add(tuple(drawn(model, batch)))
    assert {(), ("block1",), ("block2",), ("block1", "block2")} == cases


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", ["random", "crossdomain"])
def test_the_gradient_is_that_of_differences_with_styles_held_fixed(variant: str) -> None:
    model, batch = layout().train(), batch_of()
    config = MixStyleConfig(p=1.0, variant=variant)
    method = config.build(given_for(model, pictures(3)))
    torch.manual_seed(3)
    styled = drawn(model, batch, p=1.0, crosses=variant == "crossdomain")
    assert len(styled) == 2
    torch.manual_seed(3)
    found = gradients_of(method, Draw(batch, None))
    assert_slopes(
        lambda: loss_with(model, batch, styled), list(model.parameters()), list(found.values())
    )


@pytest.mark.usefixtures("float64")
def test_in_evaluation_mode_nothing_is_mixed_and_nothing_is_drawn() -> None:
    model, batch = layout(), batch_of()
    method = MixStyleConfig(p=1.0).build(given_for(model, pictures(3)))
    model.eval()
    before = torch.get_rng_state()
    found = method.loss(model, batch)
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(found, F.cross_entropy(model(batch.x), batch.y), rtol=0, atol=1e-12)


def test_a_step_leaves_nothing_in_the_network() -> None:
    data = pictures(3)
    method = built(MixStyleConfig(p=1.0), layout(), data)
    draw = draw_for(method, data)
    state = copy.deepcopy(method.model.state_dict())
    before = method.model(draw.outer.x)
    method.backward(draw)
    assert torch.equal(method.model(draw.outer.x), before)
    assert not any(part._forward_hooks for part in method.model.modules())
    assert all(torch.equal(state[name], v) for name, v in method.model.state_dict().items())
    assert not list(method.parameters())


@pytest.mark.usefixtures("float64")
def test_a_large_alpha_halves_the_way_to_the_partner() -> None:
    model, batch = layout().train(), batch_of(size=2)
    method = MixStyleConfig(p=1.0, alpha=1e9, layers=("block1",)).build(
        given_for(model, pictures(3))
    )
    z = model.network.block1(batch.x)
    factor, summand = map(torch.from_numpy, mixture(z, [1, 0], [0.5, 0.5]))
    styled = {"block1": (factor[:, :, None, None], summand[:, :, None, None])}
    # Of two images, a permutation leaves each its own partner, or takes the other one.
    expected = torch.stack([loss_with(model, batch, {}), loss_with(model, batch, styled)])
    nearest = set()
    for seed in range(6):
        torch.manual_seed(seed)
        gaps = (method.loss(model, batch).detach() - expected).abs()
        assert gaps.min() < 1e-5
        nearest.add(int(gaps.argmin()))
    assert nearest == {0, 1}


@pytest.mark.usefixtures("float64")
def test_a_batch_may_lack_a_class() -> None:
    model, batch = layout().train(), batch_of(size=20)
    keeps = batch.y != 1
    batch = Samples(*(field[keeps] for field in batch))
    method = MixStyleConfig(p=1.0).build(given_for(model, pictures(3)))
    torch.manual_seed(2)
    styled = drawn(model, batch, p=1.0)
    torch.manual_seed(2)
    expected = loss_with(model, batch, styled)
    torch.testing.assert_close(method.loss(model, batch), expected, rtol=0, atol=1e-10)


def test_two_halves_are_matched_one_to_one() -> None:
    domain = torch.tensor([4, 1, 1, 4, 4, 1, 4, 1])
    partner = partners_of_other_domains(domain)
    assert sorted(partner.tolist()) == list(range(8))
    assert (domain[partner] != domain).all()


def test_every_matching_of_two_halves_comes_up() -> None:
    domain = torch.tensor([0, 0, 0, 1, 1, 1])
    matchings = {tuple(partners_of_other_domains(domain).tolist()) for _ in range(600)}
    assert len(matchings) == 36


def test_partners_in_a_mixture_are_of_other_domains_and_all_as_likely() -> None:
    domain = torch.tensor([0, 5, 0, 2, 0, 5, 0])
    counts = torch.zeros(7, 7)
    for _ in range(1500):
        partner = partners_of_other_domains(domain)
        counts[torch.arange(7), partner] += 1
    is_other = domain[:, None] != domain
    expected = is_other / is_other.sum(1, keepdim=True)
    torch.testing.assert_close(counts / 1500, expected, rtol=0, atol=0.05)


def test_partners_come_twice_only_where_there_are_too_few() -> None:
    partner = partners_of_other_domains(torch.tensor([0, 0, 0, 0, 0, 1, 1]))
    assert sorted(torch.bincount(partner[:5], minlength=7)[5:].tolist()) == [2, 3]


@pytest.mark.usefixtures("float64")
def test_across_domains_a_batch_of_one_domain_keeps_its_styles() -> None:
    model, batch = layout().train(), batch_of()
    batch = batch._replace(domain=torch.ones_like(batch.domain))
    method = MixStyleConfig(p=1.0, variant="crossdomain").build(given_for(model, pictures(3)))
    expected = F.cross_entropy(model(batch.x), batch.y)
    torch.testing.assert_close(method.loss(model, batch), expected, rtol=0, atol=1e-10)


def test_batches_are_of_two_domains_only_where_styles_cross() -> None:
    given = given_for(layout(), pictures(3))
    plain, crossing = (MixStyleConfig(variant=v).build(given) for v in ("random", "crossdomain"))
    assert plain.sampling == Sampling()
    assert not plain.needs_domains
    assert crossing.sampling == Sampling(outer="pairs")
    assert crossing.needs_domains
    draw = draw_for(crossing, pictures(3))
    assert len(draw.outer.domain.unique()) == 2


def test_inside_cicf_the_outer_batch_is_of_two_domains() -> None:
    base = MixStyleConfig(variant="crossdomain")
    method = CicfConfig(base=base).build(given_for(layout(), pictures(3)))
    assert method.sampling == Sampling("clusters", outer="pairs")
    assert method.needs_domains


def test_styles_cannot_cross_where_there_is_one_domain() -> None:
    given = given_for(layout(), pictures(1))
    with pytest.raises(ConfigError, match="there is one source domain"):
        MixStyleConfig(variant="crossdomain").build(given)


@pytest.mark.parametrize(
    ("name", "size", "layers"),
    [
        ("resnet18", 64, ("layer1", "layer2", "layer3")),
        ("alexnet", 224, ("features.5", "features.7", "features.9")),
        ("digits_cnn", 32, ("block1", "block2")),
    ],
)
def test_layers_of_known_networks(name: str, size: int, layers: tuple[str, ...]) -> None:
    model = build_model(name, num_classes=3, image_size=size)
    assert mixed_layers(model, (), size) == layers


def test_layers_may_be_named() -> None:
    model = layout("resnet")
    assert mixed_layers(model, ("layer4", "bn1"), SIDE) == ("layer4", "bn1")


@pytest.mark.parametrize(
    ("layers", "sentence"),
    [
        (("blok1",), "'blok1' is no module of the network; did you mean 'block1'"),
        (("head",), "'head' does not put out one map of two places"),
    ],
)
def test_layers_that_cannot_be_mixed_are_refused(layers: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        MixStyleConfig(layers=layers).build(given_for(layout(), pictures(2)))


def test_a_network_without_known_stages_needs_names() -> None:
    network = layout().network
    model = SplitModel(network, cut="input", before=())
    with pytest.raises(ConfigError, match="stages of this network are not known"):
        mixed_layers(model, (), SIDE)
    assert mixed_layers(model, ("block2",), SIDE) == ("block2",)


def test_a_network_whose_stages_put_out_no_maps_is_refused() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE * SIDE, 3))
    model = SplitModel(network, cut="input", before=(), stages=("0",))
    with pytest.raises(ConfigError, match="no stage of this network puts out a map"):
        mixed_layers(model, (), SIDE)


@pytest.mark.parametrize("options", [{"p": 1.5}, {"alpha": 0.0}, {"variant": "both"}], ids=str)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MixStyleConfig.model_validate(options)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("variant", ["random", "crossdomain"])
@pytest.mark.parametrize("backbone", LAYOUTS)
def test_inside_cicf_it_has_the_gradient_of_unrolled_autograd(backbone: str, variant: str) -> None:
    base = MixStyleConfig(p=1.0, alpha=0.5, variant=variant)
    assert gap_inside_cicf(base, layout(backbone), pictures(3)) < 1e-10
