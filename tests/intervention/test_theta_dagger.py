"""The parameters to keep after training: θ† with g† over the whole training set."""

import copy

import pytest
import torch
from sklearn.datasets import load_digits
from tests.support.nets import TiedNet, conv_net, dropout_net, images, norm_net, smooth_net
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

from cicf import DataError, Intervention, RandomSampler
from cicf.maths.intervention import Labelled, Parameters, instance_gradients

pytestmark = pytest.mark.usefixtures("float64")
SIZES = ((256, "inner"), (84, "outer"))


def loader(size: int = 23, batch_size: int = 5) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(*images(size)), batch_size=batch_size)


@pytest.mark.parametrize("chunk", [None, 2])
def test_it_is_theta_moved_by_the_mean_of_the_instance_gradients(chunk: int | None) -> None:
    model = smooth_net()
    theta = {name: value.detach() for name, value in model.named_parameters()}

    def f(parameters: Parameters, z: Tensor) -> Tensor:
        return functional_call(model, parameters, (z,))

    gradients = instance_gradients(f, theta, Labelled(*images(23)))
    state = Intervention(model, alpha=0.4, chunk=chunk).theta_dagger(loader())
    for name, value in theta.items():
        torch.testing.assert_close(state[name], value - 0.4 * gradients[name].mean(dim=0))


def test_h_stays_and_the_model_is_left_alone() -> None:
    model = conv_net()
    before = copy.deepcopy(model.state_dict())
    state = Intervention(model, h=["stem"], alpha=0.4).theta_dagger(loader())
    assert torch.equal(state["stem.weight"], before["stem.weight"])
    assert not torch.equal(state["head.weight"], before["head.weight"])
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_alpha_zero_returns_theta() -> None:
    model = norm_net()
    state = Intervention(model, alpha=0.0).theta_dagger(loader())
    assert all(torch.equal(state[name], value) for name, value in model.state_dict().items())


def test_state_loads_into_the_model_and_is_a_copy() -> None:
    model = norm_net()
    state = Intervention(model, alpha=0.4).theta_dagger(loader())
    fresh = norm_net()
    fresh.load_state_dict(state, strict=True)
    with torch.no_grad():
        model.head.weight.zero_()
    assert not (state["head.weight"] == 0).any()


def test_tied_names_move_together() -> None:
    state = Intervention(TiedNet(), alpha=0.4).theta_dagger(loader())
    assert torch.equal(state["first.weight"], state["last.weight"])


def test_statistics_and_random_state_do_not_move() -> None:
    for model in (norm_net(), dropout_net()):
        before, drawn = copy.deepcopy(dict(model.named_buffers())), torch.get_rng_state()
        Intervention(model, alpha=0.4).theta_dagger(loader())
        assert torch.equal(drawn, torch.get_rng_state())
        assert all(torch.equal(before[name], value) for name, value in model.named_buffers())


def test_no_batches_are_refused() -> None:
    with pytest.raises(DataError, match="no batches"):
        Intervention(conv_net(), alpha=0.1).theta_dagger([])


def test_frozen_parameters_stay() -> None:
    model = conv_net()
    model.body.requires_grad_(False)
    state = Intervention(model, alpha=0.4).theta_dagger(loader())
    assert torch.equal(state["body.weight"], model.body.weight)


class Extra(nn.Linear):
    """Keeps something that is not a tensor in its state."""

    def get_extra_state(self) -> str:
        return "kept"

    def set_extra_state(self, state: str) -> None:
        assert state == "kept"


def test_extra_state_is_carried_along() -> None:
    model = nn.Sequential(nn.Flatten(), Extra(192, 3))
    state = Intervention(model, alpha=0.4).theta_dagger(loader())
    model.load_state_dict(state)
    assert state["1._extra_state"] == "kept"


@pytest.mark.parametrize("curvature", [0.5, 1.0, 1.5])
def test_theta_is_not_pulled_where_one_virtual_step_does_all(curvature: float) -> None:
    """On ½ λ e² with α = 1 the gradient is λ (1 − λ)² e: at λ = 1 only θ† knows the answer."""
    model = nn.Linear(1, 1, bias=False)
    model.weight.data.fill_(1.0)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        return curvature / 2 * model(batch)[:, 0] ** 2

    step, batch = Intervention(model, alpha=1.0, loss=loss), torch.ones(3, 1)
    for _ in range(20):
        model.zero_grad()
        step.backward(batch, batch)
        model.weight.data -= 0.1 * model.weight.grad
    expected = (1 - 0.1 * curvature * (1 - curvature) ** 2) ** 20
    moved = step.theta_dagger([batch])["weight"].item()
    assert model.weight.item() == pytest.approx(expected)
    assert moved == pytest.approx((1 - curvature) * expected)


@pytest.mark.slow
def test_theta_and_theta_dagger_part_when_the_virtual_step_is_long() -> None:
    """Softmax regression on handwritten digits: convex, and still θ is left behind."""
    apart = {alpha: accuracies(alpha) for alpha in (0.5, 4.0)}
    theta, dagger = apart[0.5]
    assert theta > 80
    assert abs(theta - dagger) < 5
    theta, dagger = apart[4.0]
    assert dagger > 70
    assert dagger - theta > 20


def accuracies(alpha: float) -> tuple[float, float]:
    """Return the test accuracies at θ and at θ† in percent after 150 steps."""
    digits = load_digits()
    x, y = torch.tensor(digits.data, dtype=torch.float64) / 16, torch.tensor(digits.target)
    train, held_out = (x[:1200], y[:1200]), (x[1200:], y[1200:])
    torch.manual_seed(0)
    model = nn.Linear(64, 10)
    step = Intervention(model, alpha=alpha)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    inner, outer = (RandomSampler(1200, size=size, role=role) for size, role in SIZES)
    for number in range(150):
        a, b = inner.batch(number), outer.batch(number)
        optimizer.zero_grad()
        step.backward((x[a], y[a]), (x[b], y[b]))
        optimizer.step()

    def accuracy() -> float:
        return 100 * (model(held_out[0]).argmax(dim=1) == held_out[1]).double().mean().item()

    at_theta = accuracy()
    model.load_state_dict(step.theta_dagger([train]))
    return at_theta, accuracy()
