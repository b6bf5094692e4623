"""Pass 3 on a stratified part of the inner batch: unbiased, and exact when the part is all."""

import copy

import pytest
import torch
from tests.support.nets import dropout_net, images, smooth_net
from tests.support.unrolled import distance, stepped_gradients
from torch import Tensor

from cicf import DataError, Intervention
from cicf.maths.stratified import stratified_part

pytestmark = pytest.mark.usefixtures("float64")

STRATA = torch.tensor([0] * 6 + [1] * 4 + [2] * 2)


def flat(model: torch.nn.Module) -> Tensor:
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def gradient(**options: object) -> Tensor:
    torch_state = torch.get_rng_state()
    torch.manual_seed(3)
    model = smooth_net()
    torch.set_rng_state(torch_state)
    step = Intervention(model, alpha=0.5, h=["stem"], **options)
    step.backward(images(12, 1), images(6, 2), strata=STRATA)
    return flat(model)


DRAWS = 100


@pytest.mark.slow
def test_part_is_unbiased() -> None:
    exact, first = gradient(), gradient(order=1)
    estimates = torch.stack([gradient(curvature=0.5) for _ in range(DRAWS)])
    error = (estimates.mean(dim=0) - exact).norm()
    spread = (estimates - estimates.mean(dim=0)).square().sum(dim=1).mean().sqrt()
    assert error < 4 * spread / DRAWS**0.5
    assert error < 0.3 * (exact - first).norm()


@pytest.mark.parametrize("pieces", [{"chunk": 2}, {"keeps_graphs": True}, {"keeps_graphs": False}])
def test_part_is_the_same_however_it_is_computed(pieces: dict[str, int]) -> None:
    state = torch.get_rng_state()
    whole = gradient(curvature=0.5)
    torch.set_rng_state(state)
    torch.testing.assert_close(gradient(curvature=0.5, **pieces), whole)


def test_pieces_of_one_sample_each_are_the_whole() -> None:
    torch.testing.assert_close(gradient(curvature=0.99, chunk=3), gradient())


def test_masks_of_the_part_are_those_of_the_first_pass() -> None:
    """With every sample a stratum of its own the part is the batch, in another order."""
    model, strata, (x, y) = dropout_net(), torch.arange(12), images(12, 1)
    torch.manual_seed(1)
    Intervention(model, alpha=0.5, curvature=0.5).backward((x, y), images(6, 2), strata=strata)
    found = copy.deepcopy(stepped_gradients(model))

    model.zero_grad()
    torch.manual_seed(1)
    order, _ = stratified_part(strata, 0.5, torch.default_generator)
    Intervention(model, alpha=0.5).backward((x[order], y[order]), images(6, 2))
    assert distance(stepped_gradients(model), found) < 1e-12


def test_part_is_reported_as_not_exact() -> None:
    step = Intervention(smooth_net(), alpha=0.5, curvature=0.5)
    assert not step.backward(images(12, 1), images(6, 2)).is_exact


@pytest.mark.usefixtures("untyped")
def test_strata_must_be_one_per_sample() -> None:
    step = Intervention(smooth_net(), alpha=0.5, curvature=0.5)
    with pytest.raises(DataError, match=r"strata is a list.*strata\.cluster\[index\]"):
        step.backward(images(12, 1), images(6, 2), strata=[0] * 12)
    with pytest.raises(DataError, match="strata has 3 entries for 12 inner samples"):
        step.backward(images(12, 1), images(6, 2), strata=torch.zeros(3, dtype=torch.int64))
