"""DDAIG: the transformer against NumPy, each turn's loss and sign, and the order of the turns."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
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
from tests.support.slopes import assert_slopes
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cicf import ConfigError
from cicf.core.draw import Draw
from cicf.data.loader import Evaluated
from cicf.data.transforms import IMAGENET
from cicf.methods import CicfConfig, Ddaig, DdaigConfig
from cicf.methods.ddaig import ImageTransformer

TRANSFORMER, NETWORK, DOMAINS = range(3)
SMALL = {"width": 4, "blocks": 1}


def ddaig(config: DdaigConfig, *, name: str = "digits", num_domains: int = 3) -> tuple[Ddaig, Draw]:
    """Return DDAIG with weights so large that its images change, and a draw."""
    data = pictures(num_domains)
    method = built(config, layout(name), data)
    assert isinstance(method, Ddaig)
    with torch.no_grad():
        for parameter in method.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return method, draw_for(method, data)


def at_epoch(method: Ddaig, epoch: int) -> None:
    method.before_epoch(epoch, Evaluated(pictures(3), TRANSFORM))


def gradients(module: nn.Module) -> list[Tensor]:
    found = [parameter.grad for parameter in module.parameters()]
    assert all(gradient is not None for gradient in found)
    return [gradient for gradient in found if gradient is not None]


def convolved(z: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return a convolution that sees the image reflected at its borders, tap by tap."""
    size = weight.shape[2]
    border = size // 2
    padded = np.pad(z, ((0, 0), (border, border), (border, border)), mode="reflect")
    found = np.zeros((len(weight), *z.shape[1:]))
    for row in range(size):
        for column in range(size):
            part = padded[:, row : row + z.shape[1], column : column + z.shape[2]]
            found += np.einsum("oc,chw->ohw", weight[:, :, row, column], part)
    return found


def normed(z: np.ndarray) -> np.ndarray:
    mean, variance = z.mean(axis=(1, 2), keepdims=True), z.var(axis=(1, 2), keepdims=True)
    found: np.ndarray = (z - mean) / np.sqrt(variance + 1e-5)
    return found


@pytest.mark.usefixtures("float64")
def test_the_transformer_is_that_of_the_authors_by_numpy() -> None:
    transformer = ImageTransformer(4, 2)
    with torch.no_grad():
        for parameter in transformer.parameters():
            parameter.copy_(torch.randn_like(parameter))
    w = {name: p.detach().numpy() for name, p in transformer.named_parameters()}
    image = torch.rand(3, 6, 5)
    z = np.maximum(normed(convolved(image.numpy(), w["stem.0.weight"])), 0)
    for block in range(2):
        inside = normed(convolved(z, w[f"blocks.{block}.change.0.weight"]))
        inside = normed(convolved(np.maximum(inside, 0), w[f"blocks.{block}.change.3.weight"]))
        z = z + inside
    context = np.broadcast_to(z.mean(axis=(1, 2), keepdims=True), z.shape)
    z = np.maximum(normed(convolved(np.concatenate([z, context]), w["fusion.0.weight"])), 0)
    expected = np.tanh(convolved(z, w["head.weight"]) + w["head.bias"][:, None, None])
    found = transformer(image[None])[0].detach()
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_the_transformer_begins_with_small_weights_and_no_others() -> None:
    transformer = ImageTransformer(32, 3)
    weights = [p for name, p in transformer.named_parameters() if name != "head.bias"]
    every = torch.cat([weight.detach().flatten() for weight in weights])
    assert len(every) == 27 * 32 + 3 * 2 * 9 * 32**2 + 2 * 32**2 + 3 * 32
    assert float(every.mean()) == pytest.approx(0, abs=5e-4)
    assert float(every.std()) == pytest.approx(0.02, rel=0.02)
    assert not transformer.head.bias.any()


@pytest.mark.parametrize(("side", "width"), [(16, 32), (32, 32), (33, 64), (224, 64)])
def test_larger_images_have_a_wider_transformer(side: int, width: int) -> None:
    method = built(DdaigConfig(), layout(), pictures(2), image_size=side)
    assert isinstance(method, Ddaig)
    assert method.transformer.head.in_channels == width


def test_the_transformer_has_the_width_and_blocks_that_are_asked_for() -> None:
    method, _ = ddaig(DdaigConfig(width=5, blocks=1))
    assert method.transformer.head.in_channels == 5
    assert len(method.transformer.blocks) == 1


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("clips", [False, True])
def test_images_change_by_lambda_times_the_transformer_in_pixels(clips: bool) -> None:
    data, (mean, std) = pictures(3), IMAGENET
    config = DdaigConfig(lam=0.4, clips=clips, **SMALL)
    method = built(config, layout(), data, mean=mean, std=std)
    assert isinstance(method, Ddaig)
    with torch.no_grad():
        method.transformer.head.bias += 3.0  # so that pixels leave 0 to 1
    batch = draw_for(method, data).outer
    scale, shift = torch.tensor(std)[:, None, None], torch.tensor(mean)[:, None, None]
    pixels = batch.x * scale + shift
    expected = pixels + 0.4 * method.transformer(pixels)
    assert bool((expected > 1).any())
    if clips:
        expected = expected.clamp(0, 1)
    torch.testing.assert_close(method.changed(batch) * scale + shift, expected, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_transformer_keeps_the_class_and_loses_the_domain() -> None:
    method, draw = ddaig(DdaigConfig(**SMALL))
    batch = draw.outer

    def loss() -> Tensor:
        x = method.changed(batch)
        domain_loss = F.cross_entropy(method.domain_net(x), batch.domain)
        return F.cross_entropy(method.model(x), batch.y) - domain_loss

    logged = method.turns[TRANSFORMER].backward(draw)
    assert float(logged["transformer_loss"]) == pytest.approx(float(loss().detach()), abs=1e-12)
    assert_slopes(loss, list(method.transformer.parameters()), gradients(method.transformer))


@pytest.mark.usefixtures("float64")
def test_the_turn_of_the_network_has_the_gradient_of_finite_differences() -> None:
    method, draw = ddaig(DdaigConfig(a=0.7, **SMALL))
    batch = draw.outer
    changed = method.changed(batch).detach()
    assert (changed - batch.x).abs().mean() > 0.05

    def loss() -> Tensor:
        plain = F.cross_entropy(method.model(batch.x), batch.y)
        return 0.3 * plain + 0.7 * F.cross_entropy(method.model(changed), batch.y)

    logged = method.turns[NETWORK].backward(draw)
    assert float(logged["loss"]) == pytest.approx(float(loss().detach()), abs=1e-12)
    assert_slopes(loss, list(method.model.parameters()), gradients(method.model))


@pytest.mark.usefixtures("float64")
def test_the_turn_of_the_domains_has_the_gradient_of_finite_differences() -> None:
    method, draw = ddaig(DdaigConfig(**SMALL))
    batch = draw.outer

    def loss() -> Tensor:
        return F.cross_entropy(method.domain_net(batch.x), batch.domain)

    logged = method.turns[DOMAINS].backward(draw)
    assert float(logged["domain_loss"]) == pytest.approx(float(loss().detach()), abs=1e-12)
    assert_slopes(loss, list(method.domain_net.parameters()), gradients(method.domain_net))


@pytest.mark.parametrize("turn", [TRANSFORMER, NETWORK, DOMAINS])
def test_a_turn_leaves_gradients_in_its_own_network_alone(turn: int) -> None:
    method, draw = ddaig(DdaigConfig(**SMALL))
    method.turns[turn].backward(draw)
    nets = (method.transformer, method.model, method.domain_net)
    for number, net in enumerate(nets):
        assert all((p.grad is not None) == (number == turn) for p in net.parameters())
        assert set(method.turns[number].parameters) == set(net.parameters())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    "options", [{"a": 0.0}, {"lam": 0.0}, {"warmup": 1}], ids=["a", "lam", "warmup"]
)
def test_without_changed_images_the_gradient_is_that_of_the_cross_entropy(
    options: dict[str, float],
) -> None:
    method, draw = ddaig(DdaigConfig.model_validate({**SMALL, **options}))
    expected = cross_entropy_gradients(method.model, draw.outer)
    assert_same(gradients_of(method, draw, turn=NETWORK), expected, atol=1e-12)


def test_changed_images_come_after_the_first_epochs() -> None:
    method, draw = ddaig(DdaigConfig(warmup=2, **SMALL))
    usual = cross_entropy_gradients(method.model, draw.outer)["network.head.weight"]
    differs = []
    for epoch in range(4):
        at_epoch(method, epoch)
        found = gradients_of(method, draw, turn=NETWORK)["network.head.weight"]
        differs.append(not torch.allclose(found, usual, atol=1e-6))
    assert differs == [False, False, True, True]


def test_the_transformer_and_the_domains_are_trained_from_the_first_epoch() -> None:
    method, draw = ddaig(DdaigConfig(warmup=5, **SMALL))
    before = copy.deepcopy(method.state_dict())
    moved_by(method, draw)
    after = method.state_dict()
    for name in ("transformer.stem.0.weight", "domain_net.network.head.weight"):
        assert not torch.equal(before[name], after[name])


@pytest.mark.parametrize(("warmup", "count"), [(0, 3), (1, 2)])
def test_statistics_move_in_each_forward_in_training(warmup: int, count: int) -> None:
    method, draw = ddaig(DdaigConfig(warmup=warmup, **SMALL), name="resnet")
    moved_by(method, draw)
    for net, expected in ((method.model, count), (method.domain_net, 2)):
        norm = next(part for part in net.modules() if isinstance(part, _BatchNorm))
        assert norm.num_batches_tracked is not None
        assert int(norm.num_batches_tracked) == expected


@pytest.mark.usefixtures("float64")
def test_the_network_is_trained_on_images_of_the_transformer_as_it_is_after_its_turn() -> None:
    method, draw = ddaig(DdaigConfig(a=1.0, **SMALL))
    other = copy.deepcopy(method.transformer)
    for parameter in method.transformer.parameters():
        parameter.grad = None
    method.turns[TRANSFORMER].backward(draw)
    with torch.no_grad():
        for parameter, gradient in zip(
            other.parameters(), gradients(method.transformer), strict=True
        ):
            parameter -= 0.01 * gradient
    pixels = draw.outer.x / 2 + 0.5
    changed = (2 * (pixels + 0.3 * other(pixels)) - 1).detach()
    expected = cross_entropy_gradients(method.model, draw.outer._replace(x=changed))
    found = moved_by(method, draw)
    moves = torch.cat([-0.01 * gradient.flatten() for gradient in expected.values()])
    torch.testing.assert_close(found, moves, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_with_one_domain_the_transformer_keeps_the_class_and_nothing_else() -> None:
    method, draw = ddaig(DdaigConfig(**SMALL), num_domains=1)
    loss = F.cross_entropy(method.model(method.changed(draw.outer)), draw.outer.y)
    parameters = list(method.transformer.parameters())
    expected = torch.autograd.grad(loss, parameters)
    method.turns[TRANSFORMER].backward(draw)
    for found, gradient in zip(gradients(method.transformer), expected, strict=True):
        torch.testing.assert_close(found, gradient, rtol=0, atol=1e-12)


def test_numbers_of_domains_may_have_gaps() -> None:
    data = pictures(3)
    plain, method = (
        built(DdaigConfig(**SMALL), layout(), data, sources=sources)
        for sources in ((0, 1, 2), (1, 4, 6))
    )
    draw = draw_for(method, data)
    gaps = draw.outer._replace(domain=torch.tensor([1, 4, 6])[draw.outer.domain])
    found = method.turns[DOMAINS].backward(draw._replace(outer=gaps))
    assert torch.equal(found["domain_loss"], plain.turns[DOMAINS].backward(draw)["domain_loss"])


def test_inside_of_cicf_it_is_refused_with_a_sentence() -> None:
    with pytest.raises(ConfigError, match="'ddaig' is more than a loss of one batch"):
        built(CicfConfig(base=DdaigConfig()), layout(), pictures(3))


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("lam", -0.1),
        ("a", 1.5),
        ("warmup", -1),
        ("width", 0),
        ("blocks", -1),
        ("deploy", "theta_dagger"),
    ],
)
def test_options_without_sense_are_refused(option: str, value: object) -> None:
    with pytest.raises(ValidationError, match=option):
        DdaigConfig.model_validate({option: value})
