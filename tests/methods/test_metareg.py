"""MetaReg: φ against loops and finite differences, its two phases, and what stays fixed."""

import copy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    CLASSES,
    SIDE,
    TRANSFORM,
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

import cicf
from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.experiment import events
from cicf.method import Given, Phase
from cicf.methods import MetaReg, MetaRegConfig
from cicf.models.split import SplitModel
from cicf.models.taps import features_and_logits, head_of
from cicf.training import OptimConfig, Stepped
from cicf.training.updates import Updates

PLAIN = OptimConfig(momentum=0.0, weight_decay=0.0, schedule="constant")


def learning(name: str = "digits", **options: object) -> tuple[MetaReg, Draw]:
    """Return the method in its first phase, its heads and φ not all alike, and a draw."""
    data = pictures(3)
    method = built(MetaRegConfig.model_validate(options), layout(name), data)
    assert isinstance(method, MetaReg)
    torch.manual_seed(4)
    with torch.no_grad():
        for each in method.heads.parameters():
            each.add_(0.3 * torch.randn_like(each))
        method.phi.copy_(0.1 * torch.randn_like(method.phi))
    return method, draw_for(method, data)


def training(name: str = "digits", **options: object) -> tuple[MetaReg, Draw]:
    """Return the method in its second phase, with some φ, and a draw."""
    method, _ = learning(name, **options)
    data = pictures(3)
    method.before_epoch(method.phases[0].epochs, Evaluated(data, TRANSFORM))
    return method, draw_for(method, data)


def pair_of(seed: int, num_domains: int = 3) -> tuple[int, int]:
    torch.manual_seed(seed)
    a, b = torch.randperm(num_domains)[:2].tolist()
    return a, b


def by_domain(draw: Draw, values: Tensor, k: int) -> Tensor:
    return values[draw.outer.domain == k]


def loss_after_steps(method: MetaReg, draw: Draw, phi: Tensor, pair: tuple[int, int]) -> Tensor:
    """Return CE_b after the steps of the head of a, by the slope of the cross-entropy in words."""
    a, b = pair
    with torch.no_grad():
        z = features_and_logits(method.model, draw.outer.x).features
        weight, bias = method.heads[a].weight, method.heads[a].bias
        z_a, y_a = by_domain(draw, z, a), by_domain(draw, draw.outer.y, a)
        for _ in range(method._config.inner_steps):
            error = (z_a @ weight.T + bias).softmax(1) - F.one_hot(y_a, CLASSES)
            slope = error.T @ z_a / len(y_a) + phi * weight.sign()
            weight = weight - method._config.inner_lr * slope
            bias = bias - method._config.inner_lr * error.mean(0)
        logits = by_domain(draw, z, b) @ weight.T + bias
        return F.cross_entropy(logits, by_domain(draw, draw.outer.y, b))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_gradient_of_phi_is_that_of_finite_differences_through_the_steps(seed: int) -> None:
    method, draw = learning(inner_steps=6, inner_lr=0.2)
    pair = pair_of(seed)
    torch.manual_seed(seed)
    terms = method.backward_phi(draw)
    phi, found = method.phi.detach().clone(), method.phi.grad
    assert float(terms["loss"]) == pytest.approx(
        loss_after_steps(method, draw, phi, pair).item(), abs=1e-12
    )
    for place in range(0, phi.numel(), 7):
        bump = torch.zeros_like(phi).flatten()
        bump[place] = 1e-5
        bump = bump.reshape(phi.shape)
        up, down = (loss_after_steps(method, draw, phi + s * bump, pair) for s in (1, -1))
        assert float(found.flatten()[place]) == pytest.approx(
            ((up - down) / 2e-5).item(), rel=1e-6, abs=1e-10
        )
    assert found.norm() > 1e-3


@pytest.mark.usefixtures("float64")
def test_through_one_step_the_gradient_of_phi_has_a_closed_form() -> None:
    method, draw = learning(inner_steps=1, inner_lr=0.2)
    a, b = pair_of(0)
    torch.manual_seed(0)
    method.backward_phi(draw)
    with torch.no_grad():
        z = features_and_logits(method.model, draw.outer.x).features
        weight, bias = method.heads[a].weight, method.heads[a].bias
        z_a, y_a = by_domain(draw, z, a), by_domain(draw, draw.outer.y, a)
        error = (z_a @ weight.T + bias).softmax(1) - F.one_hot(y_a, CLASSES)
        moved = weight - 0.2 * (error.T @ z_a / len(y_a) + method.phi * weight.sign())
        shifted = bias - 0.2 * error.mean(0)
        z_b, y_b = by_domain(draw, z, b), by_domain(draw, draw.outer.y, b)
        after = (z_b @ moved.T + shifted).softmax(1) - F.one_hot(y_b, CLASSES)
        expected = -0.2 * weight.sign() * (after.T @ z_b / len(y_b))
    torch.testing.assert_close(method.phi.grad, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_rate_of_phi_scales_its_step() -> None:
    steps = []
    for factor in (1.0, 3.0):
        method, draw = learning(phi_lr=factor)
        before = method.phi.detach().clone()
        moved_by(method, draw, optim=PLAIN)
        steps.append(method.phi.detach() - before)
    torch.testing.assert_close(steps[1], 3 * steps[0], rtol=1e-9, atol=0)
    assert steps[0].norm() > 0


@pytest.mark.usefixtures("float64")
def test_the_turn_of_phi_gives_a_gradient_to_phi_alone_and_keeps_statistics() -> None:
    method, draw = learning("resnet")
    before = copy.deepcopy(method.model.state_dict())
    method.backward_phi(draw)
    assert method.phi.grad.norm() > 0
    others = [*method.model.parameters(), *method.heads.parameters()]
    assert all(each.grad is None for each in others)
    assert all(torch.equal(before[key], value) for key, value in method.model.state_dict().items())


@pytest.mark.usefixtures("float64")
def test_the_networks_turn_is_the_sum_of_the_losses_of_the_domains() -> None:
    method, draw = learning()
    found = gradients_of(method, draw)
    own = [(each.weight.grad.clone(), each.bias.grad.clone()) for each in method.heads]
    expected = {name: torch.zeros_like(p) for name, p in method.model.named_parameters()}
    for k in range(3):
        whole = copy.deepcopy(method.model)
        head_of(whole).load_state_dict(method.heads[k].state_dict())
        part = draw.outer._replace(
            x=by_domain(draw, draw.outer.x, k), y=by_domain(draw, draw.outer.y, k)
        )
        slopes = cross_entropy_gradients(whole, part)
        torch.testing.assert_close(own[k][0], slopes["network.head.weight"], rtol=0, atol=1e-12)
        torch.testing.assert_close(own[k][1], slopes["network.head.bias"], rtol=0, atol=1e-12)
        for name in expected:
            expected[name] += slopes[name] * (not name.startswith("network.head"))
    assert_same(found, expected, atol=1e-12)


def test_the_first_phase_leaves_the_head_of_the_network_alone() -> None:
    method, draw = learning()
    before = copy.deepcopy(head_of(method.model).state_dict())
    heads = copy.deepcopy(method.heads.state_dict())
    moved_by(method, draw)
    after = head_of(method.model).state_dict()
    assert all(torch.equal(before[key], after[key]) for key in before)
    assert all(not torch.equal(heads[key], v) for key, v in method.heads.state_dict().items())


@pytest.mark.usefixtures("float64")
def test_the_second_phase_minimises_the_cross_entropy_and_the_regulariser() -> None:
    method, draw = training()
    model, phi = method.model, method.phi.detach()
    found = gradients_of(method, draw)
    expected = dict(cross_entropy_gradients(model, draw.outer))
    weight = head_of(model).weight.detach()
    expected["network.head.weight"] = expected["network.head.weight"] + phi * weight.sign()
    assert_same(found, expected, atol=1e-12)
    terms = method.backward(draw)
    plain = F.cross_entropy(model(draw.outer.x), draw.outer.y).item()
    penalty = sum(
        p * abs(w) for p, w in zip(phi.flatten().tolist(), weight.flatten().tolist(), strict=True)
    )
    assert float(terms["loss"]) == pytest.approx(plain + penalty, abs=1e-12)
    assert float(terms["penalty"]) == pytest.approx(penalty, abs=1e-12)


@pytest.mark.usefixtures("float64")
def test_with_phi_zero_the_second_phase_is_erm() -> None:
    method, draw = training()
    with torch.no_grad():
        method.phi.zero_()
    found = gradients_of(method, draw)
    assert_same(found, cross_entropy_gradients(method.model, draw.outer), atol=1e-12)


def test_the_second_phase_moves_the_network_and_neither_phi_nor_other_heads() -> None:
    method, draw = training()
    before = copy.deepcopy(method.state_dict())
    assert moved_by(method, draw, optim=OptimConfig(weight_decay=0.1)).norm() > 0
    assert method.phi.grad is None
    assert all(torch.equal(before[key], value) for key, value in method.state_dict().items())


def test_it_has_two_phases_and_draws_as_each_needs() -> None:
    method, _ = learning(meta_epochs=2)
    assert method.phases == (Phase("regulariser", 2), Phase("training", 4, starts_fresh=True))
    images = Evaluated(pictures(3), TRANSFORM)
    drawn = []
    for epoch in range(4):
        method.before_epoch(epoch, images)
        drawn.append(method.sampling)
        assert method.needs_domains
    assert drawn == [Sampling(outer="domains")] * 2 + [Sampling()] * 2


@pytest.mark.parametrize("is_nonnegative", [True, False])
def test_phi_may_be_kept_from_below_zero(is_nonnegative: bool) -> None:
    method, draw = learning(is_nonnegative=is_nonnegative, inner_lr=0.2)
    moved_by(method, draw)
    assert (method.phi.min() >= 0) == is_nonnegative


def test_phi_starts_at_zero_and_does_not_stay_there() -> None:
    data = pictures(3)
    method = built(MetaRegConfig(), layout(), data)
    assert isinstance(method, MetaReg)
    assert not method.phi.any()
    moved_by(method, draw_for(method, data))
    assert method.phi.any()


def test_phi_may_start_elsewhere() -> None:
    method = built(MetaRegConfig(phi_start=0.25), layout(), pictures(3))
    assert isinstance(method, MetaReg)
    assert (method.phi == 0.25).all()
    assert method.phi.shape == head_of(method.model).weight.shape


def test_domains_may_have_gaps_and_lack_a_class() -> None:
    data = pictures(3)
    places = ((data.domain != 1) & ~((data.domain == 2) & (data.y == 0))).nonzero()[:, 0]
    part = data.subset(places)
    assert isinstance(part, DomainDataset)
    method = built(MetaRegConfig(), layout(), part)
    draw = draw_for(method, part)
    assert set(draw.outer.domain.tolist()) == {0, 2}
    assert moved_by(method, draw).isfinite().all()


def test_a_head_without_bias_is_taken() -> None:
    model = layout()
    model.network.head = nn.Linear(16, CLASSES, bias=False)
    data = pictures(3)
    method = built(MetaRegConfig(), model, data)
    assert moved_by(method, draw_for(method, data)).norm() > 0


def test_a_network_without_a_linear_layer_is_refused() -> None:
    model = layout()
    model.network.head = nn.Identity()
    with pytest.raises(ConfigError, match="last linear layer"):
        built(MetaRegConfig(), model, pictures(3))


def test_phi_grows_where_a_weight_that_suits_one_domain_hurts_the_other() -> None:
    # Red says the class in both domains; green says it too, but with opposite signs.
    network = nn.Sequential(nn.AvgPool2d(SIDE), nn.Flatten(), nn.Linear(3, 2))
    model = SplitModel(network, cut="input", before=())
    with torch.no_grad():
        network[2].weight.copy_(torch.tensor([[-0.1, -0.1, -0.1], [0.1, 0.1, 0.1]]))
    y, domain = torch.arange(8) % 2, torch.arange(8) // 4
    sign = 2.0 * y - 1
    colours = torch.stack([sign, sign * (1 - 2 * domain), torch.zeros(8)], 1)
    x = colours[:, :, None, None].expand(-1, -1, SIDE, SIDE)
    draw = Draw(Samples(x, y, domain, torch.arange(8)), None, 2)
    method = MetaRegConfig(inner_lr=0.1).build(Given(model, sources=(0, 1)))
    updates = Updates(method, PLAIN, epochs=1)
    for step in range(30):
        updates.take(draw, step=step + 1, kept=lambda: "nothing was kept")
    red, green, blue = method.phi.detach().mean(0).tolist()
    assert red < 0 < green
    assert blue == 0


def test_one_domain_is_too_few(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, method={"name": "metareg"}, data={"target": None, "source": "art"})
    with pytest.raises(ConfigError, match="at least 2 source domains"):
        cicf.train(run, out=tmp_path / "run")


@pytest.mark.slow
def test_a_run_goes_on_exactly_in_both_phases(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, method={"name": "metareg"}, epochs=2)
    run = run.model_copy(update={"method": MetaRegConfig(meta_epochs=2)})
    whole = cicf.train(run, out=tmp_path / "whole")
    for last in (3, 15):
        folder = tmp_path / f"cut-{last}"
        stopped = events(run, out=folder)
        for event in stopped:
            if isinstance(event, Stepped) and event.step == last:
                break
        stopped.close()
        assert cicf.train(run, out=folder, resumes=True).last == whole.last
        first, second = (each / "model.safetensors" for each in (tmp_path / "whole", folder))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize(
    "options",
    [
        {"meta_epochs": 0},
        {"inner_steps": 0},
        {"inner_lr": 0.0},
        {"phi_lr": -1.0},
        {"phi_start": float("nan")},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_without_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MetaRegConfig.model_validate(options)
