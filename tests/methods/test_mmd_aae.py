"""MMD-AAE: terms against sums written out, both turns against differences, options, limits."""

import math
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
    given_for,
    gradients_of,
    layout,
    moved_by,
    pictures,
    samples,
)
from tests.support.slopes import assert_slopes
from tests.support.tiny import config as tiny_run
from tests.support.tiny import write_images
from torch import Tensor, nn

import cicf
from cicf import ConfigError
from cicf.core.draw import Draw
from cicf.data.sampling import Sampling
from cicf.methods import MmdAae, MmdAaeConfig
from cicf.models.split import SplitModel

ONLY_CE = {"lambda_mmd": 0.0, "lambda_ae": 0.0, "lambda_adv": 0.0}
DOMAINBED = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)


def mmd_aae(model: SplitModel, **options: object) -> MmdAae:
    method = built(MmdAaeConfig(**options), model, pictures(3))
    assert isinstance(method, MmdAae)
    return method


def batch_of(method: MmdAae) -> Draw:
    return draw_for(method, pictures(3))


def code_and_source(model: SplitModel, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return what enters the head, and the second block's output averaged over positions."""
    net = model.network
    below = net.block2(net.block1(x))
    return net.flatten(net.block3(below)), below.mean((2, 3))


def mmd_by_loops(codes: Tensor, domain: Tensor, gammas: tuple[float, ...]) -> np.ndarray:
    """Return MMD² of every two domains with a sum of kernels, sample by sample."""
    groups = [codes[domain == each].detach().numpy() for each in domain.unique()]

    def mean_kernel(a: np.ndarray, b: np.ndarray) -> float:
        total = 0.0
        for u in a:
            for v in b:
                total += sum(math.exp(-gamma * float(((u - v) ** 2).sum())) for gamma in gammas)
        return total / (len(a) * len(b))

    own = [mean_kernel(a, a) for a in groups]
    return np.array(
        [
            [own[i] + own[j] - 2 * mean_kernel(a, b) for j, b in enumerate(groups)]
            for i, a in enumerate(groups)
        ]
    )


def verdicts(method: MmdAae, codes: Tensor) -> np.ndarray:
    """Return A(h) by NumPy, from the weights of the discriminator."""
    first, _, last = method.discriminator
    z = codes.detach().numpy() @ first.weight.detach().numpy().T + first.bias.detach().numpy()
    z = np.maximum(z, 0) @ last.weight.detach().numpy().T + last.bias.detach().numpy()
    return 1 / (1 + np.exp(-z[:, 0]))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("pairs", ["all", "distinct"])
@pytest.mark.parametrize("kernels", ["mean", "sum"])
def test_the_mmd_is_the_mean_over_pairs_of_domains(kernels: str, pairs: str) -> None:
    model = layout()
    method = mmd_aae(model, **{**ONLY_CE, "lambda_mmd": 3.0}, kernels=kernels, pairs=pairs)
    part = batch_of(method).outer
    codes, _ = code_and_source(model, part.x)
    table = mmd_by_loops(codes, part.domain, (0.5, 0.1, 0.05))
    mmd = table.mean() if pairs == "all" else table[np.triu_indices(3, k=1)].mean()
    mmd = mmd / 3 if kernels == "mean" else mmd
    expected = F.cross_entropy(model(part.x), part.y) + 3.0 * float(mmd)
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_without_decoder_and_discriminator_it_is_the_mmd_of_domainbed() -> None:
    model = layout()
    config = {"gammas": DOMAINBED, "kernels": "sum", "pairs": "distinct"}
    method = mmd_aae(model, **{**ONLY_CE, "lambda_mmd": 1.0}, **config)
    part = batch_of(method).outer
    codes, _ = code_and_source(model, part.x)
    table = mmd_by_loops(codes, part.domain, DOMAINBED)
    of_domains = [
        F.cross_entropy(model(part.x[part.domain == each]), part.y[part.domain == each])
        for each in range(3)
    ]
    penalty = (table[0, 1] + table[0, 2] + table[1, 2]) / 3
    expected = sum(of_domains) / 3 + float(penalty)
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)
    assert not list(method.parameters())
    assert len(method.turns) == 1


@pytest.mark.usefixtures("float64")
def test_the_decoder_gives_back_what_lies_below_the_code() -> None:
    model = layout()
    method = mmd_aae(model, **{**ONLY_CE, "lambda_ae": 0.7}, dropout=0.0)
    part = batch_of(method).outer
    codes, below = code_and_source(model, part.x)
    linear = method.decoder[1]
    errors = codes.detach().numpy() @ linear.weight.detach().numpy().T
    errors = errors + linear.bias.detach().numpy() - below.detach().numpy()
    expected = F.cross_entropy(model(part.x), part.y) + 0.7 * float((errors**2).mean())
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_what_is_reconstructed_is_data_and_gets_no_gradient() -> None:
    model = layout()
    method = mmd_aae(model, **{**ONLY_CE, "lambda_ae": 1.0}, dropout=0.0)
    draw = batch_of(method)
    fixed = code_and_source(model, draw.outer.x)[1].detach()

    def loss() -> Tensor:
        codes, _ = code_and_source(model, draw.outer.x)
        return F.cross_entropy(model(draw.outer.x), draw.outer.y) + F.mse_loss(
            method.decoder(codes), fixed
        )

    method.backward(draw)
    parameters = [*model.parameters(), *method.decoder.parameters()]
    assert_slopes(loss, parameters, [p.grad for p in parameters])


def test_a_part_of_the_code_is_hidden_from_the_decoder() -> None:
    model = layout()
    method = mmd_aae(model, dropout=0.6)
    ones = torch.ones(2000, 16)
    torch.manual_seed(0)
    shown = method.decoder[0](ones)
    assert float((shown == 0).float().mean()) == pytest.approx(0.6, abs=0.02)
    assert float(shown.max()) == pytest.approx(1 / 0.4)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("adversary", ["minimax", "non-saturating"])
def test_the_network_minimises_what_the_discriminator_says_of_its_codes(adversary: str) -> None:
    model = layout()
    method = mmd_aae(model, **{**ONLY_CE, "lambda_adv": 0.4}, adversary=adversary)
    part = batch_of(method).outer
    a = verdicts(method, code_and_source(model, part.x)[0])
    term = np.log(1 - a).mean() if adversary == "minimax" else -np.log(a).mean()
    expected = F.cross_entropy(model(part.x), part.y) + 0.4 * float(term)
    torch.testing.assert_close(method.loss(model, part), expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("adversary", ["minimax", "non-saturating"])
def test_the_turn_of_the_network_has_the_slope_of_finite_differences(adversary: str) -> None:
    model = layout()
    method = mmd_aae(
        model, lambda_ae=0.0, lambda_mmd=5.0, lambda_adv=3.0, adversary=adversary, hidden=7
    )
    draw = batch_of(method)
    network = method.turns[0]
    network.backward(draw)
    parameters = list(network.parameters)
    slopes = [p.grad for p in parameters]
    assert_slopes(lambda: method.loss(model, draw.outer), parameters, slopes)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("adversary", ["minimax", "non-saturating"])
def test_a_step_of_the_network_makes_its_codes_more_like_the_prior(adversary: str) -> None:
    model = layout()
    method = mmd_aae(model, **{**ONLY_CE, "lambda_adv": 1e4}, adversary=adversary)
    draw = batch_of(method)
    before = verdicts(method, code_and_source(model, draw.outer.x)[0]).mean()
    method.turns[0].backward(draw)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter -= 1e-7 * parameter.grad
    assert verdicts(method, code_and_source(model, draw.outer.x)[0]).mean() > before


def discriminator_objective(
    method: MmdAae, codes: Tensor, *, seed: int, prior: str = "laplace"
) -> float:
    """Return mean log A(h') + mean log(1 − A(h)), which the discriminator maximises."""
    torch.manual_seed(seed)
    real = torch.distributions.Laplace(torch.zeros(codes.shape), torch.ones(codes.shape)).sample()
    real = real.abs() if prior == "exponential" else real
    return float(np.log(verdicts(method, real)).mean() + np.log(1 - verdicts(method, codes)).mean())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("prior", ["laplace", "exponential"])
def test_the_turn_of_the_discriminator_has_the_slope_of_finite_differences(prior: str) -> None:
    model = layout()
    method = mmd_aae(model, prior=prior, hidden=7)
    draw = batch_of(method)
    codes = code_and_source(model, draw.outer.x)[0].detach()
    network, judge = method.turns
    network.backward(draw)
    method.zero_grad()
    torch.manual_seed(4)
    logged = judge.backward(draw)
    expected = -discriminator_objective(method, codes, seed=4, prior=prior)
    assert float(logged["discriminator_loss"]) == pytest.approx(expected, rel=1e-10)
    parameters = list(judge.parameters)

    def loss() -> float:
        return -discriminator_objective(method, codes, seed=4, prior=prior)

    assert_slopes(loss, parameters, [p.grad for p in parameters])


@pytest.mark.usefixtures("float64")
def test_a_step_of_the_discriminator_tells_prior_and_codes_better_apart() -> None:
    model = layout()
    method = mmd_aae(model)
    draw = batch_of(method)
    codes = code_and_source(model, draw.outer.x)[0].detach()
    before = discriminator_objective(method, codes, seed=4)
    network, judge = method.turns
    network.backward(draw)
    method.zero_grad()
    torch.manual_seed(4)
    judge.backward(draw)
    with torch.no_grad():
        for parameter in judge.parameters:
            parameter -= 1e-3 * parameter.grad
    assert discriminator_objective(method, codes, seed=4) > before


def test_every_parameter_has_one_turn_and_the_network_is_first() -> None:
    model = layout()
    method = mmd_aae(model)
    network, judge = method.turns
    assert (network.name, judge.name) == ("network", "discriminator")
    assert set(judge.parameters) == set(method.discriminator.parameters())
    own = {*model.parameters(), *method.decoder.parameters()}
    assert set(network.parameters) == own
    assert len(network.parameters) == len(own)


def test_the_discriminator_does_not_move_the_network() -> None:
    model = layout()
    method = mmd_aae(model)
    draw = batch_of(method)
    network, judge = method.turns
    network.backward(draw)
    model.zero_grad()
    method.decoder.zero_grad()
    judge.backward(draw)
    assert all(p.grad is None for p in (*model.parameters(), *method.decoder.parameters()))


@pytest.mark.usefixtures("float64")
def test_with_weights_of_zero_it_is_the_cross_entropy() -> None:
    model = layout()
    method = mmd_aae(model, **ONLY_CE)
    draw = batch_of(method)
    expected = cross_entropy_gradients(model, draw.outer)
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("pairs", ["all", "distinct"])
def test_a_batch_of_one_domain_has_no_mmd(pairs: str) -> None:
    model = layout()
    method = mmd_aae(model, **{**ONLY_CE, "lambda_mmd": 5.0}, pairs=pairs)
    part = samples(pictures(3), torch.arange(8))
    expected = cross_entropy_gradients(model, part)
    assert_same(gradients_of(method, Draw(part, None)), expected, atol=1e-12)


def test_terms_are_logged_without_their_weights() -> None:
    model = layout()
    method = mmd_aae(model, lambda_mmd=2.0, lambda_ae=0.5, lambda_adv=0.25, dropout=0.0)
    logged = method.backward(batch_of(method))
    weights = {"cross_entropy": 1.0, "mmd": 2.0, "reconstruction": 0.5, "adversarial": 0.25}
    assert logged.keys() == {"loss", *weights}
    total = sum(weight * float(logged[name]) for name, weight in weights.items())
    assert float(logged["loss"]) == pytest.approx(total, rel=1e-6)


def test_a_batch_has_as_many_images_of_every_domain() -> None:
    assert mmd_aae(layout()).sampling == Sampling(outer="domains")


def test_a_step_moves_network_decoder_and_discriminator() -> None:
    method = mmd_aae(layout())
    before = {name: value.clone() for name, value in method.state_dict().items()}
    assert moved_by(method, batch_of(method)).norm() > 0
    after = method.state_dict()
    assert {name.split(".")[0] for name in before} == {"decoder", "discriminator"}
    assert all(not torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("backbone", "expected"),
    [("digits", "block2"), ("resnet", "layer3"), ("alexnet", "features.5")],
)
def test_the_last_stage_below_the_code_is_reconstructed(backbone: str, expected: str) -> None:
    model = layout(backbone)
    chosen = MmdAaeConfig().build(given_for(model, pictures(3)))
    torch.manual_seed(0)
    named = MmdAaeConfig(layers=(expected,)).build(given_for(model, pictures(3)))
    part = batch_of(named).outer
    named.load_state_dict(chosen.state_dict())
    values = []
    for method in (chosen, named):
        torch.manual_seed(0)
        values.append(float(method.loss(model, part).detach()))
    assert values[0] == values[1]


def test_several_layers_are_reconstructed_side_by_side() -> None:
    method = mmd_aae(layout(), layers=("block1", "block2"))
    assert method.decoder[1].out_features == 8


def test_the_discriminator_is_as_wide_as_asked_for_or_as_the_code() -> None:
    assert mmd_aae(layout(), hidden=5).discriminator[0].out_features == 5
    assert mmd_aae(layout()).discriminator[0].out_features == 16


def test_an_unknown_layer_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="'blok2' is no module of the network"):
        mmd_aae(layout(), layers=("blok2",))


def test_a_network_without_known_stages_needs_layers() -> None:
    model = SplitModel(layout().network, cut="input", before=())
    with pytest.raises(ConfigError, match=r"stages of this network are not known.*method.layers"):
        mmd_aae(model)
    assert mmd_aae(model, layers=("block1",)).decoder[1].out_features == 4
    assert mmd_aae(model, lambda_ae=0.0).decoder is None


def test_a_layer_that_does_not_run_is_refused_with_a_sentence() -> None:
    network = layout().network
    network.spare = nn.Conv2d(3, 3, 1)
    network.head = network._modules.pop("head")
    with pytest.raises(ConfigError, match="'spare' takes no part in the forward"):
        mmd_aae(SplitModel(network, cut="input", before=()), layers=("spare",))


def test_a_network_of_which_every_stage_is_the_code_is_refused_with_a_sentence() -> None:
    model = SplitModel(layout().network, cut="input", before=(), stages=("block3",))
    with pytest.raises(ConfigError, match="nothing below to reconstruct"):
        mmd_aae(model)


def test_one_source_domain_is_refused(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(
        images,
        data={"target": None, "source": "art"},
        method={"name": "mmd_aae"},
        model={"name": "tests.support.tiny:with_stages"},
    )
    with pytest.raises(ConfigError, match="'mmd_aae' needs images of at least 2 source domains"):
        cicf.train(run, out=tmp_path / "run")


@pytest.mark.parametrize(
    "options",
    [
        {"lambda_mmd": -1.0},
        {"lambda_ae": math.inf},
        {"lambda_adv": math.nan},
        {"gammas": ()},
        {"gammas": (1.0, 0.0)},
        {"kernels": "max"},
        {"dropout": 1.0},
        {"hidden": 0},
        {"prior": "normal"},
    ],
    ids=str,
)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MmdAaeConfig.model_validate(options)
