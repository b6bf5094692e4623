"""Scores per domain, and the network at θ† with g† over the whole training set."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import CLASSES, dropout_net, norm_net, smooth_net
from torch import Tensor, nn

from cicf.data.domains import DomainDataset
from cicf.data.transforms import HALF, Transform
from cicf.method import Given
from cicf.methods import CicfConfig, ErmConfig, MamlConfig
from cicf.models.split import SplitModel
from cicf.training.evaluate import at_theta_dagger, evaluation, scores

CPU = torch.device("cpu")
TRANSFORM = Transform(8, *HALF, augment="autoaugment")
COUNT = 23


class PixelNet(nn.Module):
    """Takes the value of the first pixel, counted from the bottom, for the class."""

    def forward(self, x: Tensor) -> Tensor:
        value = ((x[:, 0, 0, 0] * 0.5 + 0.5) * 255).round().long()
        return F.one_hot(value, CLASSES).float()


def noise(count: int = COUNT) -> DomainDataset:
    """Return two domains of random images with random labels."""
    stream = torch.Generator().manual_seed(1)
    return DomainDataset(
        torch.randint(256, (count, 3, 8, 8), dtype=torch.uint8, generator=stream),
        torch.randint(CLASSES, (count,), generator=stream),
        torch.arange(count) % 2,
        ("a", "b", "c"),
        ("art", "photo"),
    )


def said(
    answers: list[int], y: list[int], domain: list[int], domains: tuple[str, ...]
) -> DomainDataset:
    """Return images to which `PixelNet` gives these answers."""
    images = torch.tensor(answers, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 8, 8)
    return DomainDataset(images, torch.tensor(y), torch.tensor(domain), ("a", "b", "c"), domains)


def split(network: nn.Module, before: tuple[str, ...] = ()) -> SplitModel:
    return SplitModel(network, cut="stem" if before else "input", before=before)


def options(**changes: object) -> CicfConfig:
    return CicfConfig(**{"alpha": 0.4, "max_step_ratio": math.inf, **changes})


def twin_of(
    model: SplitModel, config: CicfConfig, *, size: int = 5, data: DomainDataset | None = None
) -> SplitModel:
    found = at_theta_dagger(
        model, config.build(Given(model)), data or noise(), TRANSFORM, size=size, device=CPU
    )
    assert found is not None
    return found


def mean_instance_gradient(model: SplitModel) -> dict[str, Tensor]:
    """Return the mean of the gradients of all images, one image at a time."""
    data = noise()
    total = {name: torch.zeros_like(value) for name, value in model.named_parameters()}
    for image, y, _ in (data[place] for place in range(COUNT)):
        x = (image.to(torch.get_default_dtype()) / 255 - 0.5) / 0.5
        loss = F.cross_entropy(model(x[None]), torch.tensor([y]))
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        for name, slope in zip(total, slopes, strict=True):
            total[name] += slope / COUNT
    return total


def test_scores_count_the_right_answers_of_each_domain() -> None:
    data = said([0, 1, 2, 1, 1], [0, 1, 1, 1, 0], [0, 0, 0, 1, 1], ("art", "photo"))
    found = scores(PixelNet(), data, TRANSFORM, device=CPU)
    assert {name: (score.correct, score.total) for name, score in found.items()} == {
        "art": (2, 3),
        "photo": (1, 2),
    }


def test_scores_leave_out_a_domain_without_images() -> None:
    data = said([0, 1, 2], [0, 1, 1], [0, 2, 2], ("art", "held out", "photo"))
    assert list(scores(PixelNet(), data, TRANSFORM, device=CPU)) == ["art", "photo"]


def test_scores_count_every_image_once_when_there_are_several_batches() -> None:
    answers = [number % 3 for number in range(300)]
    data = said(answers, [0] * 300, [number // 200 for number in range(300)], ("art", "photo"))
    found = scores(PixelNet(), data, TRANSFORM, device=CPU)
    assert {name: (score.correct, score.total) for name, score in found.items()} == {
        "art": (67, 200),
        "photo": (33, 100),
    }


def test_scores_are_those_of_the_resting_network() -> None:
    model = norm_net()
    model.add_module("drop", nn.Dropout(0.5))
    model.stem.eval()
    modes = [part.training for part in model.modules()]
    state, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    first, second = (scores(model, noise(), TRANSFORM, device=CPU) for _ in range(2))
    assert first == second
    assert [part.training for part in model.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert torch.equal(drawn, torch.get_rng_state())


def test_an_evaluation_scores_both_networks() -> None:
    data = said([0, 1, 2], [0, 1, 1], [0, 0, 0], ("art",))
    always = nn.Sequential(nn.Flatten(), nn.Linear(192, CLASSES))
    with torch.no_grad():
        always[1].weight.zero_()
        always[1].bias.copy_(torch.tensor([0.0, 0.0, 1.0]))
    found = evaluation(PixelNet(), always, data, TRANSFORM, device=CPU)
    assert found.theta["art"].correct == 2
    assert found.theta_dagger is not None
    assert found.theta_dagger["art"].correct == 0


def test_an_evaluation_without_theta_dagger_has_one_score() -> None:
    data = said([0], [0], [0], ("art",))
    assert evaluation(PixelNet(), None, data, TRANSFORM, device=CPU).theta_dagger is None


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("chunk", [None, 2])
@pytest.mark.parametrize("size", [5, 22, 100])
def test_theta_dagger_is_theta_moved_by_the_mean_of_the_instance_gradients(
    size: int, chunk: int | None
) -> None:
    model = split(smooth_net())
    state = twin_of(model, options(chunk=chunk), size=size).state_dict()
    for name, g in mean_instance_gradient(model).items():
        expected = model.state_dict()[name] - 0.4 * g
        torch.testing.assert_close(state[name], expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_what_lies_before_the_cut_stays() -> None:
    model = split(smooth_net(), before=("stem",))
    twin = twin_of(model, options())
    assert torch.equal(twin.network.stem.weight, model.network.stem.weight)
    g = mean_instance_gradient(model)["network.head.weight"]
    expected = model.network.head.weight - 0.4 * g
    torch.testing.assert_close(twin.network.head.weight, expected, rtol=0, atol=1e-10)


def test_theta_dagger_of_maml_is_that_of_cicf() -> None:
    model = split(smooth_net())
    maml = MamlConfig(alpha=0.4, max_step_ratio=math.inf).build(Given(model))
    found = at_theta_dagger(model, maml, noise(), TRANSFORM, size=5, device=CPU)
    assert found is not None
    expected = twin_of(model, options()).state_dict()
    assert all(torch.equal(expected[name], value) for name, value in found.state_dict().items())


def test_erm_has_no_theta_dagger() -> None:
    model = split(smooth_net())
    erm = ErmConfig().build(Given(model))
    assert at_theta_dagger(model, erm, noise(), TRANSFORM, size=5, device=CPU) is None


def test_the_model_is_left_as_it_was() -> None:
    network = norm_net()
    network.add_module("drop", nn.Dropout(0.5))
    model = split(network)
    model.network.body.eval()
    model.network.norm1.eval()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    modes = [part.training for part in model.modules()]
    state, drawn = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    twin_of(model, options())
    assert [part.training for part in model.modules()] == modes
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())
    assert torch.equal(drawn, torch.get_rng_state())


def test_theta_dagger_is_a_copy() -> None:
    model = split(smooth_net())
    twin = twin_of(model, options(alpha=0.0))
    with torch.no_grad():
        twin.network.head.weight.zero_()
    assert not (model.network.head.weight == 0).any()


def test_dropout_rests() -> None:
    model = split(dropout_net())
    trained = twin_of(model, options()).state_dict()
    rested = twin_of(model.eval(), options()).state_dict()
    assert all(torch.equal(trained[name], value) for name, value in rested.items())


def test_theta_dagger_depends_on_no_random_state() -> None:
    model = split(dropout_net())
    first = twin_of(model, options()).state_dict()
    torch.rand(7)
    second = twin_of(model, options()).state_dict()
    assert all(torch.equal(first[name], value) for name, value in second.items())


def test_running_statistics_are_those_of_the_model() -> None:
    model = split(norm_net())
    model(torch.randn(9, 3, 8, 8))
    twin = twin_of(model, options())
    expected = dict(model.named_buffers())
    assert all(torch.equal(expected[name], value) for name, value in twin.named_buffers())


@pytest.mark.usefixtures("float64")
def test_batch_norm_that_is_trained_uses_the_statistics_of_the_batch() -> None:
    data, model = noise(), split(norm_net())
    twin = twin_of(model, options(), size=COUNT)
    other = copy.deepcopy(model)
    x = (data.images.to(torch.float64) / 255 - 0.5) / 0.5
    F.cross_entropy(other(x), data.y).backward()
    for name, value in other.named_parameters():
        expected = value - 0.4 * value.grad
        torch.testing.assert_close(twin.state_dict()[name], expected, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
def test_batch_norm_that_rests_uses_running_statistics() -> None:
    model = split(norm_net())
    model(torch.randn(9, 3, 8, 8))
    model.eval()
    state = twin_of(model, options()).state_dict()
    for name, g in mean_instance_gradient(model).items():
        expected = model.state_dict()[name] - 0.4 * g
        torch.testing.assert_close(state[name], expected, rtol=0, atol=1e-10)


def test_a_last_batch_of_one_image_does_not_stop_batch_norm() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    twin = twin_of(split(network), options(), size=22)
    assert all(value.isfinite().all() for value in twin.parameters())


@pytest.mark.usefixtures("float64")
def test_theta_dagger_respects_the_bound_of_the_steps() -> None:
    model = split(smooth_net())
    twin = twin_of(model, options(alpha=1e3, max_step_ratio=0.02))
    theta, moved = (
        torch.cat([parameter.detach().flatten() for parameter in each.parameters()])
        for each in (model, twin)
    )
    g = torch.cat([slope.flatten() for slope in mean_instance_gradient(model).values()])
    expected = theta - 0.02 * theta.norm() * g / g.norm()
    torch.testing.assert_close(moved, expected, rtol=0, atol=1e-10)
