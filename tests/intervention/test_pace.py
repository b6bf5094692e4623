"""How a step goes through its batch: picked by the free memory, halved when it runs out."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tests.support.nets import conv_net, dropout_net, images, norm_net
from tests.support.unrolled import distance, stepped_gradients
from torch import Tensor, nn

from cicf import Intervention, cross_entropy_per_sample
from cicf.core.errors import ConfigError
from cicf.intervention import pace as pacing
from cicf.intervention.pace import Pace, Probe, fitting, probe

pytestmark = pytest.mark.usefixtures("float64")

BATCHES = tuple((x.double(), y) for x, y in (images(12, 1), images(8, 2)))


class ExhaustedError(RuntimeError):
    """Stands for the error of an allocator."""

    def __init__(self) -> None:
        super().__init__(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"
        )


class Scarce(nn.Module):
    """Is a loss whose forward or backward runs out of memory with more samples than `most`."""

    def __init__(self, most: int, *, at: Callable[[int], bool] = lambda call: True) -> None:
        super().__init__()
        self.most, self._at, self.calls = most, at, 0

    def forward(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        size = len(batch[0])
        if size > 2:
            self.calls += 1
            if size > self.most and self._at(self.calls):
                raise ExhaustedError
        return cross_entropy_per_sample(model, batch)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Return a function that says how much memory is free."""
    return lambda value: monkeypatch.setattr(pacing, "free_bytes", lambda device: int(value))


def measured(model: nn.Module) -> tuple[float, int]:
    """Return the bytes of a sample's graph, and those of what a step holds anyway."""
    step = Intervention(model, alpha=0.3)
    found = probe(step._objective, (), BATCHES[0], order=2)
    assert found is not None
    return found.bytes_per_sample, pacing.BUFFERS * sum(p.nbytes for p in model.parameters())


def test_whole_batch_is_taken_where_there_is_room(free: Callable[[float], None]) -> None:
    free(1 << 40)
    step = Intervention(conv_net(), alpha=0.3)
    assert step.pace is None
    step.backward(*BATCHES)
    assert step.pace == Pace(None, keeps_graphs=True)


def test_pieces_are_taken_where_there_is_none(free: Callable[[float], None]) -> None:
    model = conv_net()
    per_sample, fixed = measured(model)
    free((fixed + 3.5 * pacing.GROWTH * per_sample) / pacing.SHARE)
    step = Intervention(model, alpha=0.3)
    step.backward(*BATCHES)
    assert step.pace == Pace(3, keeps_graphs=False)


def test_gradient_does_not_depend_on_the_pace(free: Callable[[float], None]) -> None:
    model = conv_net()
    Intervention(model, alpha=0.3, chunk=None).backward(*BATCHES)
    expected = {name: each.clone() for name, each in stepped_gradients(model).items()}
    model.zero_grad()
    free(0)
    step = Intervention(model, alpha=0.3)
    step.backward(*BATCHES)
    assert step.pace == Pace(1, keeps_graphs=False)
    assert distance(stepped_gradients(model), expected) < 1e-12


def test_pace_is_picked_once(free: Callable[[float], None]) -> None:
    free(1 << 40)
    step = Intervention(conv_net(), alpha=0.3)
    step.backward(*BATCHES)
    free(0)
    step.backward(*BATCHES)
    assert step.pace == Pace()


def test_pace_is_picked_again_for_a_larger_batch(free: Callable[[float], None]) -> None:
    free(1 << 40)
    step = Intervention(conv_net(), alpha=0.3)
    step.backward(*BATCHES)
    free(0)
    step.backward(images(13), BATCHES[1])
    assert step.pace == Pace(1, keeps_graphs=False)


def test_pace_that_is_set_is_kept_for_larger_batches(free: Callable[[float], None]) -> None:
    free(0)
    step = Intervention(conv_net(), alpha=0.3)
    step.pace = Pace()
    step.backward(*BATCHES)
    assert step.pace == Pace()


@pytest.mark.parametrize("chunk", [None, 5])
def test_chunk_that_is_given_is_honoured(chunk: int | None, free: Callable[[float], None]) -> None:
    free(0)
    step = Intervention(conv_net(), alpha=0.3, chunk=chunk)
    step.backward(*BATCHES)
    assert step.pace == Pace(chunk, keeps_graphs=chunk is None)


@pytest.mark.parametrize("keeps_graphs", [True, False])
def test_graphs_are_kept_as_asked(keeps_graphs: bool, free: Callable[[float], None]) -> None:
    free(1 << 40)
    step = Intervention(conv_net(), alpha=0.3, keeps_graphs=keeps_graphs)
    step.backward(*BATCHES)
    assert step.pace == Pace(None, keeps_graphs=keeps_graphs)


def test_batch_statistics_take_the_whole_batch(free: Callable[[float], None]) -> None:
    free(0)
    step = Intervention(norm_net(), alpha=0.3)
    step.backward(*BATCHES)
    assert step.pace is None


def scalar(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


def test_loss_of_the_batch_takes_the_whole_batch(free: Callable[[float], None]) -> None:
    free(0)
    step = Intervention(conv_net(), alpha=0.3, loss=scalar)
    step.backward(*BATCHES)
    assert step.pace == Pace()


def test_loss_that_two_samples_cannot_have_takes_the_whole_batch(
    free: Callable[[float], None],
) -> None:
    def of_many(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if len(batch[0]) < 3:
            raise ValueError("too few samples")
        return cross_entropy_per_sample(model, batch)

    free(0)
    step = Intervention(conv_net(), alpha=0.3, loss=of_many)
    step.backward(*BATCHES)
    assert step.pace == Pace()


@pytest.mark.parametrize(("room", "chunk"), [(79.0, 4), (39.0, 2), (0.0, 1), (-1.0, 1)])
def test_fitting_pace_is_the_largest_half(room: float, chunk: int) -> None:
    assert fitting(8, 10 / pacing.GROWTH, room=room) == Pace(chunk, keeps_graphs=False)


def test_batch_that_just_fits_is_taken_whole() -> None:
    assert fitting(8, 10 / pacing.GROWTH, room=80.0) == Pace()


@pytest.mark.parametrize(("chunk", "expected"), [(None, 4), (20, 4), (6, 3), (3, 1), (1, 1)])
def test_half_of_a_pace(chunk: int | None, expected: int) -> None:
    assert Pace(chunk).halved(8) == Pace(expected, keeps_graphs=False, retries=1)


def test_probe_counts_what_autograd_saves() -> None:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
    batch = torch.randn(7, 6), torch.randint(2, (7,))
    step = Intervention(model, alpha=0.3, order=1)
    found = probe(step._objective, (), batch, order=1)
    # The image, the value of tanh, the class probabilities and the labels, of eight bytes each;
    # cross-entropy keeps one more number for the two samples.
    assert found == Probe(8 * (6 + 5 + 2 + 1 + 1 / 2), is_per_sample=True)


def test_probe_leaves_no_trace(free: Callable[[float], None]) -> None:
    free(1 << 40)
    model = dropout_net()
    model.add_module("norm", nn.BatchNorm1d(3))

    def run(chunk: str | None) -> list[Tensor | None]:
        torch.manual_seed(3)
        model.zero_grad()
        model.norm.reset_running_stats()
        Intervention(model, alpha=0.3, chunk=chunk, batch_norm="running").backward(*BATCHES)
        return [*(p.grad for p in model.parameters()), *model.buffers(), torch.rand(3)]

    for found, expected in zip(
        *(copy.deepcopy(run(chunk)) for chunk in ("auto", None)), strict=True
    ):
        assert torch.equal(found, expected)


# Of the forwards with more than two samples: pass 1, the outer loss before, pass 2.
PASSES = {"first": 1, "before": 2, "second": 3}


@pytest.mark.parametrize("name", PASSES)
def test_step_that_runs_out_of_memory_is_taken_again_in_halves(name: str) -> None:
    model = conv_net()
    Intervention(model, alpha=0.3, chunk=None).backward(*BATCHES)
    expected = {key: each.clone() for key, each in stepped_gradients(model).items()}
    model.zero_grad()
    loss = Scarce(6, at=lambda call: call == PASSES[name])
    step = Intervention(model, alpha=0.3, loss=loss)
    step.backward(*BATCHES)
    assert step.pace == Pace(6, keeps_graphs=False, retries=1)
    assert distance(stepped_gradients(model), expected) < 1e-12


class Heavy(nn.Module):
    """Passes values on, and runs out of memory when it is differentiated twice, `fails` times."""

    def __init__(self, fails: int) -> None:
        super().__init__()
        self.fails = fails

    def forward(self, x: Tensor) -> Tensor:
        y = x * x
        if y.requires_grad:
            y.register_hook(self._first)
        return y

    def _first(self, slope: Tensor) -> None:
        if slope.requires_grad:
            slope.register_hook(self._second)

    def _second(self, _: Tensor) -> None:
        if self.fails:
            self.fails -= 1
            raise ExhaustedError


def test_third_pass_that_runs_out_of_memory_is_taken_again() -> None:
    heavy = Heavy(fails=1)
    model = nn.Sequential(nn.Conv2d(3, 3, 1), heavy, dropout_net())
    start = torch.get_rng_state()
    step = Intervention(model, alpha=0.3, chunk=None)
    step.backward(*BATCHES)
    assert heavy.fails == 0
    after = torch.rand(3)
    expected = {name: each.clone() for name, each in stepped_gradients(model).items()}
    assert step.pace == Pace(6, keeps_graphs=False, retries=1)
    model.zero_grad()
    torch.set_rng_state(start)
    Intervention(model, alpha=0.3, chunk=6).backward(*BATCHES)
    assert distance(stepped_gradients(model), expected) < 1e-12
    assert torch.equal(torch.rand(3), after)


def test_step_is_halved_until_it_fits() -> None:
    step = Intervention(conv_net(), alpha=0.3, loss=Scarce(3))
    step.backward(*BATCHES)
    assert step.pace == Pace(3, keeps_graphs=False, retries=2)


def test_statistics_move_once_when_a_step_is_taken_again() -> None:
    model = norm_net()
    loss = Scarce(6, at=lambda call: call == PASSES["second"])
    Intervention(model, alpha=0.3, loss=loss, batch_norm="running").backward(*BATCHES)
    assert int(model.norm1.num_batches_tracked) == 1


class Never(nn.Module):
    """Is a loss that runs out of memory whenever it is asked for a gradient."""

    def forward(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        if len(batch[0]) != 2:
            raise ExhaustedError
        return cross_entropy_per_sample(model, batch)


def test_one_sample_that_does_not_fit_is_told() -> None:
    model = conv_net()
    step, state = Intervention(model, alpha=0.3, loss=Never(), chunk=1), torch.get_rng_state()
    with pytest.raises(ExhaustedError):
        step.backward(*BATCHES)
    assert all(each is None for each in stepped_gradients(model).values())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("chunk", ["auto", None])
def test_loss_of_the_batch_tells_of_memory_and_not_of_pieces(chunk: str | None) -> None:
    def scarce(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return Scarce(2)(model, batch).mean()

    with pytest.raises(ExhaustedError):
        Intervention(conv_net(), alpha=0.3, loss=scarce, chunk=chunk).backward(*BATCHES)


def test_batch_statistics_tell_of_memory_and_not_of_pieces() -> None:
    with pytest.raises(ExhaustedError):
        Intervention(norm_net(), alpha=0.3, loss=Scarce(2)).backward(*BATCHES)


def test_other_errors_are_not_tried_again() -> None:
    calls: list[int] = []

    def wrong(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        calls.append(len(batch[0]))
        raise ConfigError(f"{type(model).__name__} is wrong")

    with pytest.raises(ConfigError):
        Intervention(conv_net(), alpha=0.3, loss=wrong, chunk=None).backward(*BATCHES)
    assert calls == [12]


def test_step_among_ranks_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor, group: tensor)
    step = Intervention(conv_net(), alpha=0.3, loss=Scarce(6), chunk=None)
    with pytest.raises(ExhaustedError):
        step.backward(*BATCHES)
    assert step.pace == Pace()
