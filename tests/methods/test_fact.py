"""FACT: its loss against NumPy, its partners, its teacher, and its place inside of CICF."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    SIDE,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    gradients_of,
    layout,
    moved_by,
    pictures,
    samples,
)
from tests.support.slopes import assert_slopes
from torch import Tensor, nn
from torch.func import functional_call

from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.loader import Evaluated
from cicf.data.transforms import IMAGENET, Transform
from cicf.methods import CicfConfig, Fact, FactConfig
from cicf.methods.fact import Partners, divergence, partners_of, teacher_of
from cicf.models.split import SplitModel

PLACES = torch.arange(0, 72, 7)


def fact(
    name: str = "digits", *, num_domains: int = 3, config: FactConfig | None = None
) -> tuple[Fact, Draw]:
    """Return FACT with a teacher that is not the network, and a draw."""
    data = pictures(num_domains)
    method = built(config or FactConfig(), layout(name), data)
    assert isinstance(method, Fact)
    with torch.no_grad():
        for parameter in method.teacher.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return method, draw_for(method, data)


def softened(logits: np.ndarray, temperature: float) -> np.ndarray:
    exponentials = np.exp(logits / temperature)
    found: np.ndarray = exponentials / exponentials.sum(axis=1, keepdims=True)
    return found


def mixed_by_numpy(
    x: np.ndarray, partner: np.ndarray, lam: np.ndarray, mean: np.ndarray, std: np.ndarray
) -> np.ndarray:
    """Return the mixed images, in the 0 to 255 of image files and by the whole transform."""
    found = np.empty_like(x)
    for i, j in enumerate(partner):
        for c in range(3):
            own, other = (np.fft.fft2(255 * (x[k, c] * std[c] + mean[c])) for k in (i, j))
            amplitude = lam[i] * np.abs(other) + (1 - lam[i]) * np.abs(own)
            pixels = np.fft.ifft2(amplitude * np.exp(1j * np.angle(own))).real
            found[i, c] = (np.clip(pixels, 0, 255) / 255 - mean[c]) / std[c]
    return found


@pytest.mark.usefixtures("float64")
def test_the_loss_is_that_of_the_paper_by_numpy() -> None:
    method, draw = fact(config=FactConfig(eta=0.8, ramp=0, consistency=1.7, temperature=3.0))
    batch = draw.outer
    count = len(batch.y)
    torch.manual_seed(4)
    found = float(method.loss(method.model, batch).detach())
    torch.manual_seed(4)
    partner, lam = torch.randperm(count).numpy(), 0.8 * torch.rand(count).numpy()
    half = np.full(3, 0.5)
    mixed = torch.from_numpy(mixed_by_numpy(batch.x.numpy(), partner, lam, half, half))
    with torch.no_grad():
        student, mixed_student, taught, mixed_taught = (
            network(x).numpy()
            for network in (method.model, method.teacher)
            for x in (batch.x, mixed)
        )
    expected = 0.0
    for i, y in enumerate(batch.y.tolist()):
        for logits in (student, mixed_student):
            expected += -math.log(softened(logits, 1.0)[i, y]) / 2 / count
        for p, q in ((taught, mixed_student), (mixed_taught, student)):
            p_soft, q_soft = softened(p, 3.0)[i], softened(q, 3.0)[i]
            terms = (a * math.log(a / b) for a, b in zip(p_soft, q_soft, strict=True))
            expected += 1.7 * sum(terms) / count
    assert found == pytest.approx(expected, abs=1e-10)


@pytest.mark.usefixtures("float64")
def test_images_are_mixed_in_pixels_whatever_their_normalisation() -> None:
    data, (mean, std) = pictures(3), IMAGENET
    method = built(FactConfig(), layout(), data, mean=mean, std=std)
    assert isinstance(method, Fact)
    batch = Evaluated(data, Transform(SIDE, mean, std, augment="none")).batch(PLACES)
    # Noise, because sums of whole numbers can be 0, and a frequency that is not there has no phase.
    batch = batch._replace(x=batch.x + 0.01 * torch.rand(batch.x.shape))
    torch.manual_seed(4)
    found = method.mixed(batch)
    torch.manual_seed(4)
    partner, lam = torch.randperm(len(PLACES)).numpy(), torch.rand(len(PLACES)).numpy()
    expected = mixed_by_numpy(batch.x.numpy(), partner, lam, np.array(mean), np.array(std))
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_mixed_images_have_pixels_from_0_to_1() -> None:
    method, draw = fact()
    x = draw.outer.x.sign()  # black and white, so that mixes overshoot
    pixels = method.mixed(draw.outer._replace(x=x)) / 2 + 0.5
    assert pixels.min() == 0
    assert pixels.max() == 1


@pytest.mark.usefixtures("float64")
def test_without_agreement_the_gradient_is_that_of_the_batch_and_its_mixes() -> None:
    method, draw = fact(config=FactConfig(consistency=0.0))
    batch = draw.outer
    torch.manual_seed(4)
    found = gradients_of(method, draw)
    torch.manual_seed(4)
    seen = Samples(*(torch.cat([field, field]) for field in batch))
    seen = seen._replace(x=torch.cat([batch.x, method.mixed(batch)]))
    assert_same(found, cross_entropy_gradients(method.model, seen), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_a_network_that_is_its_own_teacher_agrees_on_unmixed_images() -> None:
    data = pictures(3)
    method = built(FactConfig(eta=0.0, ramp=0, consistency=9.0), layout(), data)
    draw = draw_for(method, data)
    expected = cross_entropy_gradients(method.model, draw.outer)
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_the_gradient_is_that_of_finite_differences_with_the_same_draws() -> None:
    method, draw = fact(config=FactConfig(ramp=0, consistency=50.0, temperature=2.0))

    def loss() -> Tensor:
        torch.manual_seed(4)
        return method.loss(method.model, draw.outer)

    torch.manual_seed(4)
    gradients = list(gradients_of(method, draw).values())
    assert_slopes(loss, list(method.model.parameters()), gradients)


@pytest.mark.usefixtures("float64")
def test_a_divergence_is_zero_between_equals_and_has_the_slope_of_finite_differences() -> None:
    taught, logits = torch.randn(5, 3), torch.randn(5, 3, requires_grad=True)
    assert float(divergence(taught, taught, 4.0)) == pytest.approx(0, abs=1e-15)
    assert torch.autograd.gradcheck(lambda z: divergence(taught, z, 4.0), (logits,))


@pytest.mark.parametrize("partners", ["inter", "intra"])
def test_partners_come_from_the_domains_that_they_may_come_from(partners: Partners) -> None:
    domain = torch.tensor([4, 4, 1, 7, 7, 7, 1, 4, 7, 1])
    seen = torch.stack([domain[partners_of(domain, partners)] for _ in range(50)])
    assert bool(((seen == domain) == (partners == "intra")).all())
    others = 1 if partners == "intra" else 2
    assert all(len(column.unique()) == others for column in seen.T)


def test_partners_within_a_domain_are_drawn_from_all_of_it() -> None:
    domain = torch.tensor([0, 0, 1, 0])
    seen = torch.stack([partners_of(domain, "intra") for _ in range(50)])
    assert seen[:, 0].unique().tolist() == [0, 1, 3]
    assert seen[:, 2].unique().tolist() == [2]


def test_each_image_is_the_partner_of_one_when_all_may_be() -> None:
    found = partners_of(torch.zeros(9, dtype=torch.int64), "all")
    assert found.sort().values.tolist() == list(range(9))


@pytest.mark.usefixtures("float64")
def test_a_batch_of_one_domain_is_not_mixed_with_others() -> None:
    method, _ = fact(config=FactConfig(partners="inter"))
    batch = samples(pictures(3), torch.arange(6))
    assert batch.domain.unique().tolist() == [0]
    torch.testing.assert_close(method.mixed(batch), batch.x, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("partners", "is_needed"), [("all", False), ("inter", True), ("intra", True)]
)
def test_domains_are_needed_to_choose_partners_by_them(partners: Partners, is_needed: bool) -> None:
    method, _ = fact(config=FactConfig(partners=partners))
    assert method.needs_domains == is_needed


def test_partners_in_other_domains_need_other_domains() -> None:
    with pytest.raises(ConfigError, match="there is one source domain only"):
        fact(num_domains=1, config=FactConfig(partners="inter"))


@pytest.mark.parametrize("epochs", [1, 5])
def test_the_weight_of_the_agreement_grows_by_epochs(epochs: int) -> None:
    method, _ = fact(config=FactConfig(consistency=2.0, ramp=epochs))
    assert float(method.weight) == pytest.approx(2 * 0.006737946999085467)  # e^-5
    images = Evaluated(pictures(3), Transform(SIDE, *IMAGENET))
    found = []
    for epoch in range(8):
        method.before_epoch(epoch, images)
        found.append(float(method.weight))
    assert found == sorted(found)
    assert found[epochs:] == [2.0] * (8 - epochs)
    if epochs == 5:
        assert found[2] == pytest.approx(2 * 0.16529888822158653)  # e^(-9/5)


def test_without_a_ramp_the_agreement_has_its_weight_at_once() -> None:
    method, _ = fact(config=FactConfig(consistency=3.0, ramp=0))
    assert float(method.weight) == 3.0


@pytest.mark.usefixtures("float64")
def test_the_teacher_is_the_mean_of_all_networks_so_far_at_first() -> None:
    data = pictures(3)
    method = built(FactConfig(), layout(), data)
    seen = [nn.utils.parameters_to_vector(method.model.parameters()).detach().clone()]
    for step in range(4):
        moved_by(method, draw_for(method, data, step=step % 3))
        seen.append(nn.utils.parameters_to_vector(method.model.parameters()).detach().clone())
    found = nn.utils.parameters_to_vector(method.teacher.parameters())
    torch.testing.assert_close(found, torch.stack(seen).mean(0), rtol=0, atol=1e-14)


@pytest.mark.usefixtures("float64")
def test_the_teacher_follows_at_its_momentum_later_on() -> None:
    method, draw = fact(config=FactConfig(momentum=0.9))
    method.steps_taken += 100
    before = nn.utils.parameters_to_vector(method.teacher.parameters()).clone()
    moved_by(method, draw)
    fast = nn.utils.parameters_to_vector(method.model.parameters()).detach()
    found = nn.utils.parameters_to_vector(method.teacher.parameters())
    torch.testing.assert_close(found, 0.9 * before + 0.1 * fast, rtol=0, atol=1e-14)
    assert int(method.steps_taken) == 101


def test_a_loss_changes_nothing_of_the_teacher_and_trains_nothing_of_it() -> None:
    method, draw = fact("resnet")
    before = copy.deepcopy(method.state_dict())
    method.backward(draw)
    assert all(torch.equal(before[name], value) for name, value in method.state_dict().items())
    assert all(parameter.grad is None for parameter in method.teacher.parameters())
    assert not set(method.teacher.parameters()) & set(method.trained)


@pytest.mark.parametrize("is_training", [True, False])
def test_the_teacher_normalises_by_the_statistics_of_the_batch(is_training: bool) -> None:
    model, x = layout("resnet"), samples(pictures(3), PLACES).x
    teacher = teacher_of(model).train(is_training)
    torch.testing.assert_close(teacher(x), model.train()(x))
    assert not any(name.endswith("running_mean") for name in teacher.state_dict())


def test_a_teacher_with_statistics_of_each_image_normalises_by_those() -> None:
    norm = nn.InstanceNorm2d(3, track_running_stats=True)
    network = nn.Sequential(norm, nn.Flatten(), nn.Linear(3 * SIDE**2, 3))
    model, x = SplitModel(network, cut="input", before=()), samples(pictures(3), PLACES).x
    torch.testing.assert_close(teacher_of(model)(x), model.train()(x))


def test_the_teacher_drops_out_as_a_network_in_training_does() -> None:
    teacher, x = teacher_of(layout("alexnet").eval()), samples(pictures(3), PLACES).x
    assert not torch.equal(teacher(x), teacher(x))


@pytest.mark.parametrize("norm", ["batch", "running", "frozen"])
def test_inside_of_cicf_the_teacher_stays_as_it_is_until_the_step_is_over(norm: str) -> None:
    data = pictures(3)
    method = built(CicfConfig(base=FactConfig(), batch_norm=norm), layout("resnet"), data)
    base = method.base
    draw = draw_for(method, data)
    before = copy.deepcopy(base.state_dict())
    method.backward(draw)
    assert all(torch.equal(before[name], value) for name, value in base.state_dict().items())
    moved_by(method, draw)
    fast, slow = (next(iter(net.parameters())) for net in (method.model, base.teacher))
    torch.testing.assert_close(slow, (before["teacher.network.conv1.weight"] + fast) / 2)


@pytest.mark.usefixtures("float64")
def test_inside_of_cicf_the_gradient_is_that_of_the_unrolled_step() -> None:
    data = pictures(3)
    options = FactConfig(eta=0.0, ramp=0, consistency=30.0, temperature=2.0)
    config = CicfConfig(base=options, alpha=0.3, max_step_ratio=math.inf)
    method = built(config, layout(), data)
    with torch.no_grad():
        for parameter in method.base.teacher.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    model, draw = method.model, draw_for(method, data)
    found = gradients_of(method, draw)
    theta = dict(model.named_parameters())

    def loss(parameters: dict[str, Tensor], batch: Samples) -> Tensor:
        logits, taught = (
            functional_call(model, parameters, (batch.x,)),
            method.base.teacher(batch.x),
        )
        p, q = (F.softmax(each / 2.0, dim=1) for each in (taught, logits))
        agreement = (p * (p.log() - q.log())).sum(dim=1).mean()
        return F.cross_entropy(logits, batch.y) + 2 * 30.0 * agreement

    slopes = torch.autograd.grad(loss(theta, draw.inner), list(theta.values()), create_graph=True)
    moved = {n: p - 0.3 * g for (n, p), g in zip(theta.items(), slopes, strict=True)}
    expected = torch.autograd.grad(loss(moved, draw.outer), list(theta.values()))
    assert_same(found, dict(zip(theta, expected, strict=True)), atol=1e-10)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("eta", 1.5),
        ("eta", -0.1),
        ("consistency", -1.0),
        ("temperature", 0.0),
        ("momentum", 1.0),
        ("ramp", -1),
        ("partners", "others"),
        ("deploy", "theta_dagger"),
    ],
)
def test_options_without_sense_are_refused(option: str, value: object) -> None:
    with pytest.raises(ValidationError, match=option):
        FactConfig.model_validate({option: value})
