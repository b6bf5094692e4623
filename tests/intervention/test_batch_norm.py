"""Batch norm in the virtual step: three policies, and statistics that move exactly once."""

import copy

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import images, norm_net
from tests.support.unrolled import distance, stepped_gradients, unrolled_gradients
from torch import nn

from cicf import ConfigError, Intervention, cross_entropy_per_sample

pytestmark = pytest.mark.usefixtures("float64")

INNER, OUTER = images(10, 1), images(6, 2)


def warmed_net() -> nn.Sequential:
    """Return a network whose running statistics are not those of its initialisation."""
    model = norm_net()
    for seed in range(5):
        model(images(20, seed)[0] * 2 + 1)
    return model


def batch_norms(model: nn.Module) -> list[nn.BatchNorm2d]:
    return [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]


def as_double(batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    return batch[0].double(), batch[1]


def unrolled(model: nn.Module) -> dict[str, torch.Tensor | None]:
    return unrolled_gradients(
        model, as_double(INNER), as_double(OUTER), loss=cross_entropy_per_sample, alpha=0.3
    )


def stepped(model: nn.Module, **options: object) -> dict[str, torch.Tensor | None]:
    Intervention(model, alpha=0.3, **options).backward(as_double(INNER), as_double(OUTER))
    return stepped_gradients(model)


def test_batch_policy_is_unrolled_training_mode() -> None:
    model = warmed_net()
    expected = unrolled(copy.deepcopy(model))
    assert distance(stepped(model, batch_norm="batch"), expected) < 1e-10


@pytest.mark.parametrize("chunk", [None, 3])
def test_frozen_policy_is_unrolled_evaluation_mode(chunk: int | None) -> None:
    model = warmed_net()
    expected = unrolled(copy.deepcopy(model).eval())
    before = copy.deepcopy(dict(model.named_buffers()))
    assert distance(stepped(model, batch_norm="frozen", chunk=chunk), expected) < 1e-10
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


@pytest.mark.parametrize("chunk", [None, 3])
def test_running_policy_moves_by_running_statistics_and_trains_them(chunk: int | None) -> None:
    model = warmed_net()
    twin = copy.deepcopy(model)

    def by_size(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        for module in batch_norms(model):
            module.training = len(batch[0]) == len(OUTER[0])
        return cross_entropy_per_sample(model, batch)

    expected = unrolled_gradients(twin, as_double(INNER), as_double(OUTER), loss=by_size, alpha=0.3)
    assert distance(stepped(model, batch_norm="running", chunk=chunk), expected) < 1e-10
    assert int(batch_norms(model)[0].num_batches_tracked) == 6


@pytest.mark.parametrize("policy", ["batch", "running"])
@pytest.mark.parametrize("order", [1, 2])
def test_statistics_move_once_by_the_outer_batch_at_theta_dagger(policy: str, order: int) -> None:
    model = warmed_net()
    twin = copy.deepcopy(model)
    stepped(model, batch_norm=policy, order=order, h=("stem",))

    # The first norm stands before any parameter that moves, so its statistics are plain training's.
    twin.norm1(twin.stem(as_double(OUTER)[0]))
    torch.testing.assert_close(model.norm1.running_mean, twin.norm1.running_mean)
    torch.testing.assert_close(model.norm1.running_var, twin.norm1.running_var)
    assert int(model.norm2.num_batches_tracked) == 6


def test_modes_are_left_as_they_were() -> None:
    model = warmed_net()
    model.norm2.eval()
    stepped(model, batch_norm="frozen")
    assert [module.training for module in batch_norms(model)] == [True, False]


def test_evaluation_mode_is_respected_by_every_policy() -> None:
    model = warmed_net()
    model.eval()
    before = copy.deepcopy(dict(model.named_buffers()))
    stepped(model, batch_norm="running", chunk=3)
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


@pytest.mark.parametrize("option", [{"chunk": 4}, {"curvature": 0.5}])
def test_batch_statistics_refuse_what_takes_the_batch_apart(option: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=r"(chunk=4|curvature=0\.5).*batch_norm='running'"):
        stepped(warmed_net(), **option)


def test_norm_without_statistics_is_refused_where_they_are_needed() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 8), nn.BatchNorm2d(4, track_running_stats=False))
    loss = lambda model, batch: F.cross_entropy(model(batch[0]).flatten(1), batch[1])  # noqa: E731
    with pytest.raises(ConfigError, match="track_running_stats=True"):
        stepped(model, batch_norm="frozen", loss=loss)


@pytest.mark.usefixtures("untyped")
def test_unknown_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch_norm='sync' must be"):
        Intervention(norm_net(), alpha=0.1, batch_norm="sync")


def test_buffers_that_a_module_replaces_are_kept() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(192, 3)
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = self.calls + 1
            out: torch.Tensor = self.head(x.flatten(1))
            return out

    model = Counting()
    stepped(model, chunk=2)
    assert float(model.calls) == 1
