"""MLDG: its gradient against unrolled autograd, its limits, and what it draws."""

import copy
import math

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
from torch import Tensor
from torch.func import functional_call
from torch.nn.modules.batchnorm import _BatchNorm

from cicf import DataError
from cicf.core.draw import Draw, Samples
from cicf.method import Method
from cicf.methods import MldgConfig
from cicf.models.split import SplitModel
from cicf.virtual_step import meta_split

ALPHA = 0.3


def mldg(model: SplitModel, num_domains: int = 3, **options: object) -> tuple[Method, Draw]:
    """Return MLDG without a bound on its step, and what it draws."""
    data = pictures(num_domains)
    known = {"alpha": ALPHA, "max_step_ratio": math.inf, "chunk": None}
    method = built(MldgConfig.model_validate({**known, **options}), model, data)
    return method, draw_for(method, data)


def held_out(draw: Draw, seed: int) -> tuple[Samples, Samples]:
    """Return meta-train and meta-test as a step that begins with this seed draws them."""
    torch.manual_seed(seed)
    domains = sorted(set(draw.outer.domain.tolist()))
    test = domains[int(torch.randint(len(domains), ()))]
    train, last = (
        Samples(*(field[which] for field in draw.outer))
        for which in (draw.outer.domain != test, draw.outer.domain == test)
    )
    return train, last


def found_with(method: Method, draw: Draw, seed: int) -> dict[str, Tensor]:
    torch.manual_seed(seed)
    return dict(gradients_of(method, draw))


def mean_over_domains(model: SplitModel, parameters: dict[str, Tensor], batch: Samples) -> Tensor:
    """Return F: the mean over domains of the cross-entropy of each, all in one forward."""
    logits = functional_call(model, parameters, (batch.x,))
    losses = [
        F.cross_entropy(logits[batch.domain == each], batch.y[batch.domain == each])
        for each in sorted(set(batch.domain.tolist()))
    ]
    return sum(losses[1:], losses[0]) / len(losses)


def unrolled(
    model: SplitModel,
    train: Samples,
    test: Samples,
    *,
    alpha: float = ALPHA,
    beta: float = 1.0,
    order: int = 2,
) -> dict[str, Tensor]:
    """Return the gradient of F(θ) + β G(θ − α ∇F(θ)) through one graph; what `h` names stays."""
    parameters = dict(model.named_parameters())
    loss = mean_over_domains(model, parameters, train)
    theta = {n: p for n, p in parameters.items() if not n.startswith(model.h)}
    g = torch.autograd.grad(loss, list(theta.values()), create_graph=True)
    moved = {
        name: value - alpha * (slope if order == 2 else slope.detach())
        for (name, value), slope in zip(theta.items(), g, strict=True)
    }
    logits = functional_call(model, {**parameters, **moved}, (test.x,))
    total = loss + beta * F.cross_entropy(logits, test.y)
    return dict(zip(parameters, torch.autograd.grad(total, list(parameters.values())), strict=True))


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("num_domains", [2, 3, 5])
@pytest.mark.parametrize("order", [1, 2])
def test_the_gradient_is_that_of_meta_train_and_of_meta_test_after_a_virtual_step(
    order: int, num_domains: int
) -> None:
    model = layout()
    method, draw = mldg(model, num_domains, order=order, beta=0.7)
    for seed in range(3):
        found = found_with(method, draw, seed)
        train, test = held_out(draw, seed)
        assert_same(found, unrolled(model, train, test, beta=0.7, order=order), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_two_orders_differ() -> None:
    model = layout()
    (first, draw), (second, _) = (mldg(model, order=order) for order in (1, 2))
    a, b = (found_with(method, draw, 0)["network.head.weight"] for method in (first, second))
    assert (a - b).abs().max() > 1e-3


@pytest.mark.usefixtures("float64")
def test_what_lies_before_the_cut_does_not_take_the_virtual_step_but_is_trained() -> None:
    whole = layout()
    model = SplitModel(whole.network, cut="block1", before=("block1",), stages=whole.stages)
    method, draw = mldg(model)
    found = found_with(method, draw, 0)
    expected = unrolled(model, *held_out(draw, 0))
    assert_same(found, expected, atol=1e-12)
    assert found["network.block1.0.weight"].abs().max() > 1e-3
    other = unrolled(whole, *held_out(draw, 0))
    assert (other["network.block1.0.weight"] - expected["network.block1.0.weight"]).norm() > 1e-6


@pytest.mark.usefixtures("float64")
def test_meta_train_is_one_forward_so_that_both_of_its_uses_see_the_same_dropout() -> None:
    model = layout("alexnet")
    method, draw = mldg(model)
    found = found_with(method, draw, 3)
    train, test = held_out(draw, 3)
    assert_same(found, unrolled(model, train, test), atol=1e-12)
    torch.manual_seed(4)
    other = unrolled(model, train, test)
    assert (
        found["network.classifier.1.weight"] - other["network.classifier.1.weight"]
    ).norm() > 0.01


@pytest.mark.usefixtures("float64")
def test_in_pieces_the_gradient_is_the_same() -> None:
    model = layout()
    method, draw = mldg(model, chunk=5)
    assert_same(found_with(method, draw, 0), unrolled(model, *held_out(draw, 0)), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_beta_zero_is_the_cross_entropy_of_meta_train() -> None:
    model = layout()
    method, draw = mldg(model, beta=0.0)
    found = found_with(method, draw, 1)
    train, _ = held_out(draw, 1)
    assert_same(found, cross_entropy_gradients(model, train), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_alpha_zero_is_the_cross_entropy_of_meta_train_and_beta_times_that_of_meta_test() -> None:
    model = layout()
    method, draw = mldg(model, alpha=0.0, beta=0.7)
    found = found_with(method, draw, 1)
    f, g = (cross_entropy_gradients(model, part) for part in held_out(draw, 1))
    assert_same(found, {name: f[name] + 0.7 * g[name] for name in f}, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_gradient_is_the_slope_of_the_objective() -> None:
    model = layout()
    method, draw = mldg(model)
    found = found_with(method, draw, 2)
    train, test = held_out(draw, 2)
    direction = {name: torch.randn_like(p) for name, p in model.named_parameters()}

    def objective(t: float) -> float:
        other = copy.deepcopy(model)
        with torch.no_grad():
            for name, parameter in other.named_parameters():
                parameter += t * direction[name]
        other.zero_grad()
        loss = F.cross_entropy(other(train.x), train.y)
        loss.backward()
        with torch.no_grad():
            for parameter in other.parameters():
                parameter -= ALPHA * parameter.grad
            return float(loss + F.cross_entropy(other(test.x), test.y))

    slope = (objective(1e-5) - objective(-1e-5)) / 2e-5
    assert sum(float((found[n] * d).sum()) for n, d in direction.items()) == pytest.approx(
        slope, rel=1e-7
    )


@pytest.mark.usefixtures("float64")
def test_a_batch_that_lacks_a_class_is_no_special_case() -> None:
    model = layout()
    method, draw = mldg(model)
    keep = draw.outer.y != 1
    lacking = draw._replace(outer=Samples(*(field[keep] for field in draw.outer)))
    found = found_with(method, lacking, 0)
    train, test = held_out(lacking, 0)
    loss = F.cross_entropy(model(train.x), train.y)
    parameters = list(model.parameters())
    g = torch.autograd.grad(loss, parameters, create_graph=True)
    moved = {
        name: p - ALPHA * slope
        for (name, p), slope in zip(model.named_parameters(), g, strict=True)
    }
    total = loss + F.cross_entropy(functional_call(model, moved, (test.x,)), test.y)
    expected = dict(zip(moved, torch.autograd.grad(total, parameters), strict=True))
    assert_same(found, expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_logged_losses_are_those_of_the_objective() -> None:
    model = layout()
    method, draw = mldg(model, beta=0.7)
    torch.manual_seed(2)
    logged = method.backward(draw)
    train, test = held_out(draw, 2)
    moved = copy.deepcopy(model)
    moved.zero_grad()
    f = F.cross_entropy(moved(train.x), train.y)
    before = F.cross_entropy(moved(test.x), test.y)
    f.backward()
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter -= ALPHA * parameter.grad
    g = F.cross_entropy(moved(test.x), test.y)
    expected = {
        "loss": f + 0.7 * g,
        "loss_at_theta": f + 0.7 * before,
        "outer_loss": g,
        "inner_loss": f,
    }
    for name, value in expected.items():
        torch.testing.assert_close(torch.as_tensor(logged[name]), value.detach())
    assert logged["alpha"] == ALPHA


def test_each_domain_is_held_out_as_often_as_another() -> None:
    batch = samples(pictures(4))
    torch.manual_seed(0)
    found = [int(meta_split(batch)[1].domain[0]) for _ in range(400)]
    for each in range(4):
        assert 70 <= found.count(each) <= 130


def test_a_split_takes_a_batch_apart_by_domain_wherever_images_are() -> None:
    whole = samples(pictures(3))
    order = torch.randperm(len(whole.y))
    batch = Samples(*(field[order] for field in whole))
    train, test = meta_split(batch)
    assert len(set(test.domain.tolist())) == 1
    assert not set(test.domain.tolist()) & set(train.domain.tolist())
    assert sorted([*train.place.tolist(), *test.place.tolist()]) == sorted(batch.place.tolist())
    assert train.place.tolist() == [p for p in batch.place.tolist() if p in train.place.tolist()]


def test_a_batch_of_one_domain_is_refused_with_a_sentence() -> None:
    model = layout()
    method, draw = mldg(model)
    alone = Samples(*(field[draw.outer.domain == 0] for field in draw.outer))
    with pytest.raises(DataError, match="train on at least 2 source domains"):
        method.backward(draw._replace(outer=alone))


def test_domains_may_have_gaps() -> None:
    model = layout()
    method, draw = mldg(model)
    gaps = draw._replace(outer=draw.outer._replace(domain=draw.outer.domain * 3 + 2))
    assert_same(found_with(method, gaps, 0), found_with(method, draw, 0), atol=0)


@pytest.mark.parametrize(
    ("policy", "updates"), [("batch", 2), ("running", 2), ("frozen", 0)], ids=str
)
def test_running_statistics_move_with_both_losses_or_not_at_all(policy: str, updates: int) -> None:
    model = layout("resnet")
    method, draw = mldg(model, batch_norm=policy)
    method.backward(draw)
    norm = next(part for part in model.modules() if isinstance(part, _BatchNorm))
    assert int(norm.num_batches_tracked) == updates
    assert norm.training


@pytest.mark.usefixtures("float64")
def test_theta_dagger_takes_the_gradient_of_all_images() -> None:
    model = layout()
    method, _ = mldg(model)
    batch = samples(pictures(3))
    state = method.theta_dagger([batch])
    assert state is not None
    g = cross_entropy_gradients(model, batch)
    expected = {name: p.detach() - ALPHA * g[name] for name, p in model.named_parameters()}
    assert_same({name: state[name] for name in expected}, expected, atol=1e-12)


def test_the_virtual_step_is_bounded_by_default() -> None:
    model = layout()
    data = pictures(3)
    method = built(MldgConfig(alpha=1e3), model, data)
    logged = method.backward(draw_for(method, data))
    assert float(logged["step_ratio"]) == pytest.approx(0.01, rel=1e-5)
    assert logged["alpha"] < 1e3


def test_mldg_as_published_keeps_theta_and_weighs_both_losses_alike() -> None:
    config = MldgConfig()
    assert (config.deploy, config.order, config.beta) == ("theta", 2, 1.0)


@pytest.mark.parametrize(
    "options", [{"beta": -0.1}, {"alpha": -1.0}, {"order": 3}, {"deploy": "both"}], ids=str
)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MldgConfig.model_validate(options)
