"""The suggestion of α, against a loss whose virtual step is known in closed form."""

import math

import pytest
import torch
from tests.support.nets import dropout_net, images, norm_net
from torch import Tensor, nn

from cicf import ConfigError, DataError, suggest_alpha

pytestmark = pytest.mark.usefixtures("float64")


class Bowl(nn.Module):
    """Is a single parameter w at 1."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(()))


def quadratic(model: nn.Module, batch: Tensor) -> Tensor:
    """Return w² / 2 · k for samples k: a step of α takes w to w (1 − α k̄)."""
    return model.w.square() / 2 * batch


def test_largest_alpha_of_a_bowl_is_two_over_its_curvature() -> None:
    curve = suggest_alpha(Bowl(), [torch.tensor([1.0, 3.0]), torch.tensor([8.0])], loss=quadratic)
    assert curve.alpha == pytest.approx(2 / 4, rel=0.02)
    assert curve.alpha < 2 / 4
    assert curve.best == pytest.approx(1 / 4, rel=0.5)
    assert curve.loss == pytest.approx(2.0)


def test_curve_is_the_inner_loss_after_each_step() -> None:
    curve = suggest_alpha(Bowl(), [torch.tensor([4.0])], loss=quadratic)
    for alpha, loss in curve.curve:
        assert loss == pytest.approx(2 * (1 - 4 * alpha) ** 2)
    alphas = [alpha for alpha, _ in curve.curve]
    assert alphas == sorted(alphas)
    assert all(loss < curve.loss for alpha, loss in curve.curve if alpha <= curve.alpha)


def test_curve_prints_as_a_table() -> None:
    text = str(suggest_alpha(Bowl(), [torch.tensor([4.0])], loss=quadratic))
    assert "largest that lowers the loss" in text
    assert "lowest loss" in text


def test_flat_descent_stops_at_the_largest_asked_for() -> None:
    def line(model: nn.Module, batch: Tensor) -> Tensor:
        return model.w * batch

    assert suggest_alpha(Bowl(), [torch.ones(2)], loss=line, largest=7.0).alpha == 7.0


def test_overflow_counts_as_a_loss_that_rises() -> None:
    def steep(model: nn.Module, batch: Tensor) -> Tensor:
        return torch.exp(1000 * (model.w - 1)) * batch + torch.exp(1000 * (1 - model.w)) * batch * 2

    assert math.isfinite(suggest_alpha(Bowl(), [torch.ones(1)], loss=steep, smallest=1e-9).alpha)


def test_stationary_point_is_refused() -> None:
    model = Bowl()
    with torch.no_grad():
        model.w.zero_()
    with pytest.raises(DataError, match="does not lower the inner loss"):
        suggest_alpha(model, [torch.ones(2)], loss=quadratic)


def test_random_numbers_of_the_loss_are_the_same_at_every_alpha() -> None:
    stream = torch.Generator().manual_seed(0)

    def noisy(model: nn.Module, batch: Tensor) -> Tensor:
        return quadratic(model, batch) + torch.randn(len(batch), generator=stream)

    found = [
        suggest_alpha(Bowl(), [torch.full((3,), 4.0)], loss=noisy, generators=[stream]).alpha
        for _ in range(2)
    ]
    assert found[0] == found[1] == pytest.approx(0.5, rel=0.02)


def test_losses_that_overflow_are_never_the_best() -> None:
    def falling(model: nn.Module, batch: Tensor) -> Tensor:
        loss = model.w * batch
        return torch.where(model.w < -50, torch.full_like(loss, torch.nan), loss)

    curve = suggest_alpha(Bowl(), [torch.ones(2)], loss=falling)
    assert curve.best == max(alpha for alpha, loss in curve.curve if not math.isnan(loss))


def test_bad_range_is_named() -> None:
    with pytest.raises(ConfigError, match=r"smallest=2\.0 must be above 0 and below largest=1\.0"):
        suggest_alpha(Bowl(), [torch.ones(2)], loss=quadratic, smallest=2.0, largest=1.0)


@pytest.mark.parametrize("build", [dropout_net, norm_net])
def test_asking_twice_gives_the_same_answer_and_changes_nothing(build: type[nn.Module]) -> None:
    model, batches = build(), [images(12, 1), images(12, 2)]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, second = (suggest_alpha(model, iter(batches)) for _ in range(2))
    assert first == second
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
