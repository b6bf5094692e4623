"""CrossGrad: where it moves images, what it trains on them, and its place inside of CICF."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    CLASSES,
    SIDE,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    gradients_of,
    layout,
    pictures,
)
from tests.support.slopes import assert_slopes
from torch import Tensor, nn
from torch.func import functional_call

from cicf.core.draw import Draw, Samples
from cicf.method import source_ids
from cicf.methods import CicfConfig, CrossGrad, CrossGradConfig
from cicf.models.split import SplitModel

Parameters = dict[str, Tensor]


def crossgrad(
    config: CrossGradConfig, *, model: SplitModel | None = None, num_domains: int = 3
) -> tuple[CrossGrad, Draw]:
    """Return CrossGrad with weights so large that images move, and a draw."""
    data = pictures(num_domains)
    method = built(config, model or layout(), data)
    assert isinstance(method, CrossGrad)
    with torch.no_grad():
        for parameter in (*method.model.parameters(), *method.domain_net.parameters()):
            parameter += 0.2 * torch.randn_like(parameter)
    return method, draw_for(method, data)


def linear() -> SplitModel:
    """Return a linear network, whose gradients by pixels can be written down."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(3 * SIDE**2, CLASSES))
    return SplitModel(network, cut="input", before=())


def weights_of(model: SplitModel) -> tuple[np.ndarray, np.ndarray]:
    layer = model.network[1]
    assert isinstance(layer, nn.Linear)
    return layer.weight.detach().numpy(), layer.bias.detach().numpy()


def losses_and_slopes(
    x: np.ndarray, y: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return −log p_y of each row and its gradient by the row, Wᵀ (p − e_y)."""
    losses, slopes = np.empty(len(x)), np.empty_like(x)
    for i, row in enumerate(x):
        exponentials = np.exp(weight @ row + bias)
        p = exponentials / exponentials.sum()
        losses[i] = -np.log(p[y[i]])
        slopes[i] = weight.T @ (p - np.eye(len(p))[y[i]])
    return losses, slopes


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("gradient_of", ["mean", "image"])
@pytest.mark.parametrize("clip", [0.01, 100.0])
def test_the_loss_of_a_linear_network_is_that_of_the_paper_by_numpy(
    gradient_of: str, clip: float
) -> None:
    config = CrossGradConfig(epsilon=2.5, a=0.3, clip=clip, gradient_of=gradient_of)
    method, draw = crossgrad(config, model=linear())
    batch = draw.outer
    x, y, d = batch.x.flatten(1).numpy(), batch.y.numpy(), batch.domain.numpy()
    label_net, domain_net = weights_of(method.model), weights_of(method.domain_net)
    label_losses, label_slopes = losses_and_slopes(x, y, *label_net)
    domain_losses, domain_slopes = losses_and_slopes(x, d, *domain_net)
    share = 1 / len(x) if gradient_of == "mean" else 1.0
    x_d = x + 2.5 * np.clip(share * domain_slopes, -clip, clip)
    x_y = x + 2.5 * np.clip(share * label_slopes, -clip, clip)
    is_clipped = np.abs(share * domain_slopes) > clip
    assert is_clipped.any() == (clip < 1)
    expected = 0.7 * (label_losses + domain_losses) + 0.3 * (
        losses_and_slopes(x_d, y, *label_net)[0] + losses_and_slopes(x_y, d, *domain_net)[0]
    )
    found = method.loss(method.model, batch).detach()
    if gradient_of == "mean":
        assert float(found) == pytest.approx(expected.mean(), abs=1e-10)
    else:
        np.testing.assert_allclose(found, expected, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_the_gradients_of_both_networks_are_those_of_finite_differences_with_moves_held() -> None:
    config = CrossGradConfig(epsilon=50.0, a=0.6, gradient_of="image")
    method, draw = crossgrad(config)
    batch = draw.outer
    x = batch.x.clone().requires_grad_()
    domain_loss = F.cross_entropy(method.domain_net(x), batch.domain, reduction="sum")
    label_loss = F.cross_entropy(method.model(x), batch.y, reduction="sum")
    x_d, x_y = (
        batch.x + 50.0 * torch.autograd.grad(loss, x)[0].clamp(-0.1, 0.1)
        for loss in (domain_loss, label_loss)
    )
    assert (x_d - batch.x).norm(dim=1).mean() > 0.1

    def loss() -> Tensor:
        plain = F.cross_entropy(method.model(batch.x), batch.y)
        moved = F.cross_entropy(method.model(x_d), batch.y)
        plain_domain = F.cross_entropy(method.domain_net(batch.x), batch.domain)
        moved_domain = F.cross_entropy(method.domain_net(x_y), batch.domain)
        return 0.4 * (plain + plain_domain) + 0.6 * (moved + moved_domain)

    for net in (method.model, method.domain_net):
        method.model.zero_grad()
        method.zero_grad()
        method.backward(draw)
        assert_slopes(loss, list(net.parameters()), [p.grad for p in net.parameters()])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("options", [{"a": 0.0}, {"epsilon": 0.0}], ids=["a", "epsilon"])
def test_without_moved_images_both_networks_have_the_gradient_of_their_cross_entropy(
    options: dict[str, float],
) -> None:
    method, draw = crossgrad(CrossGradConfig(gradient_of="image", **options))
    batch = draw.outer
    assert_same(
        gradients_of(method, draw), cross_entropy_gradients(method.model, batch), atol=1e-12
    )
    found = {name: p.grad for name, p in method.domain_net.named_parameters()}
    by_domain = batch._replace(y=batch.domain)
    expected = cross_entropy_gradients(method.domain_net, by_domain)
    assert_same(found, expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_with_one_domain_there_is_nowhere_to_move_to() -> None:
    method, draw = crossgrad(CrossGradConfig(epsilon=10.0, gradient_of="image"), num_domains=1)
    expected = cross_entropy_gradients(method.model, draw.outer)
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_images_move_to_where_their_domain_is_less_sure() -> None:
    method, draw = crossgrad(CrossGradConfig(epsilon=0.1, a=1.0, gradient_of="image"))
    batch = draw.outer
    seen: list[Tensor] = []
    handle = method.model.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    method.loss(method.model, batch)
    handle.remove()
    before, after = (
        F.cross_entropy(method.domain_net(x), batch.domain, reduction="none") for x in seen
    )
    assert bool((after > before).all())


@pytest.mark.usefixtures("float64")
def test_the_gradient_of_the_mean_moves_images_less_in_larger_batches() -> None:
    whole = {"epsilon": 3.0, "clip": 1e9}
    method, draw = crossgrad(CrossGradConfig(**whole))
    of_image, _ = crossgrad(
        CrossGradConfig(epsilon=3.0 / len(draw.outer.y), clip=1e9, gradient_of="image")
    )
    of_image.load_state_dict(method.state_dict())
    found = method.loss(method.model, draw.outer)
    expected = of_image.loss(method.model, draw.outer).mean()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_by_the_gradient_of_an_image_others_do_not_matter() -> None:
    method, draw = crossgrad(CrossGradConfig(epsilon=10.0, gradient_of="image"))
    few = Samples(*(field[5:9] for field in draw.outer))
    found = method.loss(method.model, few)
    torch.testing.assert_close(
        found, method.loss(method.model, draw.outer)[5:9], rtol=0, atol=1e-12
    )


def test_the_network_for_domains_has_a_new_head_and_the_same_weights_before_it() -> None:
    data, model = pictures(5), layout("alexnet")
    method = built(CrossGradConfig(), model, data)
    assert isinstance(method, CrossGrad)
    assert method.domain_net(draw_for(method, data).outer.x).shape == (24, 5)
    own, other = model.state_dict(), method.domain_net.state_dict()
    assert own.keys() == other.keys()
    same = {name for name in own if torch.equal(own[name], other[name])}
    assert own.keys() - same == {"network.classifier.3.weight", "network.classifier.3.bias"}
    assert not set(model.parameters()) & set(method.domain_net.parameters())


def test_numbers_of_domains_may_have_gaps() -> None:
    data = pictures(3)
    method = built(CrossGradConfig(), layout(), data, sources=(1, 4, 6))
    batch = draw_for(method, data).outer
    gaps = batch._replace(domain=torch.tensor([1, 4, 6])[batch.domain])
    plain = built(CrossGradConfig(), layout(), data)
    assert torch.equal(
        method.loss(method.model, gaps).detach(), plain.loss(plain.model, batch).detach()
    )


def unrolled_loss(
    method: CrossGrad, theta: Parameters, batch: Samples, config: CrossGradConfig
) -> Tensor:
    """Return the loss as a function of the parameters of both networks; moves are constant."""

    def of(net: nn.Module, prefix: str, x: Tensor, target: Tensor) -> Tensor:
        own = {name.removeprefix(prefix): p for name, p in theta.items() if name.startswith(prefix)}
        return F.cross_entropy(functional_call(net, own, (x,)), target, reduction="none")

    d = source_ids(batch.domain, (0, 1, 2))
    nets = ((method.model, "label.", batch.y), (method.domain_net, "domain.", d))
    x = batch.x.clone().requires_grad_()
    plain = [of(net, prefix, x, target) for net, prefix, target in nets]
    share = 1 / len(batch.y) if config.gradient_of == "mean" else 1.0
    moves = [
        share * torch.autograd.grad(loss.sum(), x, retain_graph=True)[0].detach() for loss in plain
    ]
    moved = [
        of(net, prefix, batch.x + config.epsilon * move.clamp(-config.clip, config.clip), target)
        for (net, prefix, target), move in zip(nets, reversed(moves), strict=True)
    ]
    total = (1 - config.a) * (plain[0] + plain[1]) + config.a * (moved[0] + moved[1])
    return total.mean()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("gradient_of", ["mean", "image"])
@pytest.mark.parametrize("order", [1, 2])
def test_inside_of_cicf_both_networks_take_the_virtual_step(gradient_of: str, order: int) -> None:
    data = pictures(3)
    base = CrossGradConfig(epsilon=10.0, gradient_of=gradient_of)
    config = CicfConfig(base=base, alpha=0.3, order=order, max_step_ratio=math.inf)
    method = built(config, layout(), data)
    inside, draw = method.base, draw_for(method, data)
    assert isinstance(inside, CrossGrad)
    with torch.no_grad():
        for parameter in method.trained:
            parameter += 0.2 * torch.randn_like(parameter)
    found = dict(gradients_of(method, draw))
    theta = {f"label.{n}": p for n, p in method.model.named_parameters()}
    theta |= {f"domain.{n}": p for n, p in inside.domain_net.named_parameters()}
    values = list(theta.values())
    inner = unrolled_loss(inside, theta, draw.inner, base)
    slopes = torch.autograd.grad(inner, values, create_graph=order == 2)
    moved = {n: p - 0.3 * g for (n, p), g in zip(theta.items(), slopes, strict=True)}
    outer = torch.autograd.grad(unrolled_loss(inside, moved, draw.outer, base), values)
    expected = dict(zip(theta, outer, strict=True))
    found = {f"label.{n}": g for n, g in found.items()}
    found |= {f"domain.{n}": p.grad for n, p in inside.domain_net.named_parameters()}
    assert_same(found, expected, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_inside_of_cicf_a_batch_may_be_cut_where_images_do_not_affect_each_other() -> None:
    data = pictures(3)
    base = CrossGradConfig(epsilon=10.0, gradient_of="image")
    found = []
    for chunk in (None, 5):
        method = built(CicfConfig(base=base, alpha=0.3, chunk=chunk), layout(), data)
        found.append(gradients_of(method, draw_for(method, data)))
    assert_same(found[1], found[0], atol=1e-10)


@pytest.mark.parametrize(
    ("option", "value"),
    [("epsilon", -1.0), ("a", 1.1), ("clip", 0.0), ("gradient_of", "sum"), ("name", "erm")],
)
def test_options_without_sense_are_refused(option: str, value: object) -> None:
    with pytest.raises(ValidationError, match=option):
        CrossGradConfig.model_validate({option: value})
