"""The sharpest minimum, against steps that are really taken."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from cicf import Intervention
from cicf.maths.stability import Order, contraction, sharpest

RATES = st.floats(1e-3, 10)


class Bowl(nn.Module):
    """Has the loss ½ λ θ² for whatever it is given."""

    def __init__(self, curvature: float, start: float = 1.0) -> None:
        super().__init__()
        self.curvature = curvature
        self.theta = nn.Parameter(torch.tensor(start))

    def forward(self, x: Tensor) -> Tensor:
        return self.theta.expand(len(x), 1)


def bowl_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    out = model(batch[0])
    return 0.5 * batch[1] * out[:, 0] ** 2


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("alpha", [0.0, 0.1, 0.3, 0.5])
@pytest.mark.parametrize("curvature", [0.5, 3.0, 9.0])
@pytest.mark.parametrize("order", [1, 2])
def test_a_step_multiplies_the_distance_by_the_contraction(
    alpha: float, curvature: float, order: Order
) -> None:
    model, beta = Bowl(curvature, start=1.7), 0.3
    batch = torch.zeros(3, 1), torch.full((3,), curvature)
    Intervention(model, alpha=alpha, loss=bowl_loss, order=order).backward(batch, batch)
    with torch.no_grad():
        model.theta -= beta * model.theta.grad
    expected = 1.7 * contraction(curvature, alpha, beta, order)
    assert float(model.theta.detach()) == pytest.approx(expected, rel=1e-12)


@given(RATES)
def test_without_a_virtual_step_and_with_one_as_long_as_the_real_one_it_is_that_of_erm(
    beta: float,
) -> None:
    assert sharpest(0.0, beta) == pytest.approx(2 / beta)
    assert sharpest(beta, beta) == pytest.approx(2 / beta, rel=1e-9)


@given(RATES, RATES)
def test_there_the_factor_is_minus_one_and_below_it_is_within(alpha: float, beta: float) -> None:
    edge = sharpest(alpha, beta)
    assert contraction(edge, alpha, beta) == pytest.approx(-1, abs=1e-6)
    for share in (0.01, 0.2, 0.5, 0.9, 0.999):
        assert -1 <= contraction(share * edge, alpha, beta) <= 1


@given(RATES, st.floats(1.01, 100))
def test_a_longer_virtual_step_keeps_flatter_minima_only_and_a_shorter_one_sharper(
    beta: float, factor: float
) -> None:
    assert sharpest(factor * beta, beta) < 2 / beta < sharpest(beta / factor, beta)


@given(RATES, RATES)
def test_at_order_1_steps_leave_beyond_the_edge_and_stay_below(alpha: float, beta: float) -> None:
    edge = sharpest(alpha, beta, order=1)
    assert edge <= 1 / alpha
    assert abs(contraction(edge, alpha, beta, order=1)) == pytest.approx(1, abs=1e-6)
    for share in (0.01, 0.2, 0.5, 0.9, 0.999):
        assert abs(contraction(share * edge, alpha, beta, order=1)) <= 1


@given(RATES, RATES, st.floats(1.001, 100))
def test_where_the_virtual_step_overshoots_order_1_leads_away_from_the_minimum_whatever_the_rate(
    alpha: float, beta: float, factor: float
) -> None:
    assert contraction(factor / alpha, alpha, beta, order=1) > 1
    # Order 2 leads towards it there, and past it where β is large.
    assert contraction(factor / alpha, alpha, beta) < 1


def test_a_long_virtual_step_is_what_bounds_the_sharpness() -> None:
    # With β going to 0 plain descent stays anywhere; the virtual step does not much above 1/α.
    assert sharpest(0.5, 1e-3) < 30 < 2 / 1e-3
