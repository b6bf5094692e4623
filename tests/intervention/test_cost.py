"""What a step costs, by counting: multiplications, forwards, and what is kept in memory."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from cicf import Intervention
from cicf.core.pace import Pace
from cicf.intervention.pace import saved_bytes

M, OUTER, CLASSES = 12, 4, 3
ADDMM, LINEAR = torch.ops.aten.addmm_, torch.ops.mkldnn._linear_pointwise


def network(width: int = 6) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(width, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, width, 3, padding=1),
        nn.Flatten(),
        nn.Linear(16 * width, CLASSES),
    )


def batch(size: int) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 3, 8, 8), torch.randint(CLASSES, (size,))


def addmm_flops(out: Sequence[int], a: Sequence[int], b: Sequence[int], **_: object) -> int:
    assert tuple(out) == (a[0], b[1])
    return 2 * a[0] * a[1] * b[1]


def linear_flops(x: Sequence[int], weight: Sequence[int], *_: object, **__: object) -> int:
    assert x[1] == weight[1]
    return 2 * x[0] * x[1] * weight[0]


def counter() -> FlopCounterMode:
    return FlopCounterMode(display=False, custom_mapping={ADDMM: addmm_flops, LINEAR: linear_flops})


def forward_flops(model: nn.Module) -> tuple[int, int]:
    """Return F of one sample, and the part of it that the first layer is."""
    with counter() as count, torch.no_grad():
        model(batch(1)[0])
    whole = count.get_total_flops()
    with counter() as count, torch.no_grad():
        model[0](batch(1)[0])
    return whole, count.get_total_flops()


def step_flops(model: nn.Module, **options: object) -> int:
    step = Intervention(model, alpha=0.1, measures_before=False, **options)
    with counter() as count:
        step.backward(batch(M), batch(OUTER))
    return count.get_total_flops()


# Forwards per inner sample, and how many of them the first layer does not pay, since nobody asks
# for the gradient of an image: it has 2 of 3 products in a pass (value, kernel) and 2 of 6 in the
# second derivative (what the kernel's direction gives to the slope, and the slope to the kernel).
# A pass that is computed again to be differentiated leaves out the kernels' gradients: 2 of 3, and
# 1 of 2 in the first layer; how many samples pay that comes last, and the last piece does not.
MODES: dict[str, tuple[dict[str, object], int, int, int]] = {
    "kept": ({"chunk": None}, 9, 5, 0),
    "whole, recomputed": ({"chunk": None, "keeps_graphs": False}, 9, 5, 12),
    "in pieces, recomputed": ({"chunk": 5}, 9, 5, 10),
    "first order": ({"chunk": None, "order": 1}, 3, 1, 0),
}


@pytest.mark.parametrize("name", MODES)
@pytest.mark.parametrize("width", [6, 128])
def test_multiplications_are_those_of_the_cost_model(name: str, width: int) -> None:
    options, inner, unpaid, again = MODES[name]
    model = network(width)
    whole, first = forward_flops(model)
    outer = OUTER * (3 * whole - first)
    expected = M * (inner * whole - unpaid * first) + again * (2 * whole - first) + outer
    assert step_flops(model, **options) == pytest.approx(expected, rel=1e-3)


def forwards(model: nn.Module, part: nn.Module, **options: object) -> list[int]:
    """Return with how many samples a part of the model was called, call by call."""
    sizes: list[int] = []
    handle = part.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    options = {"chunk": None, "measures_before": False, **options}
    Intervention(model, alpha=0.1, **options).backward(batch(M), batch(OUTER))
    handle.remove()
    return sizes


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [12, 4]),
        ({"order": 1}, [12, 4]),
        ({"keeps_graphs": False}, [12, 4, 12]),
        ({"chunk": 5}, [5, 5, 2, 3, 1, 5, 5]),
        ({"chunk": 5, "keeps_graphs": True}, [5, 5, 2, 3, 1]),
        ({"chunk": 5, "order": 1}, [5, 5, 2, 3, 1]),
        ({"measures_before": True}, [12, 4, 4]),
    ],
)
def test_forwards_of_a_step(options: dict[str, object], expected: list[int]) -> None:
    model = network()
    assert forwards(model, model, **options) == expected


def test_automatic_pace_costs_one_forward_of_two_samples() -> None:
    model = network()
    assert forwards(model, model, chunk="auto") == [2, 12, 4]


@pytest.mark.parametrize("is_frozen", [False, True])
def test_frozen_h_is_not_differentiated(is_frozen: bool) -> None:
    model = network()
    trained = step_flops(model, chunk=None, h=["0", "2"])
    model[0].requires_grad_(not is_frozen)
    model[2].requires_grad_(not is_frozen)
    found = step_flops(model, chunk=None, h=["0", "2"])
    assert forwards(model, model[2], h=["0", "2"]) == [12, 4]
    assert (found < 0.6 * trained) == is_frozen


def kept_bytes(m: int, **options: object) -> int:
    """Return the most that autograd holds at once during a step.

    Counting takes hooks on what is saved, with which all operators are left to torch.
    """
    held = {"now": 0, "most": 0}

    class Kept:
        def __init__(self, value: Tensor) -> None:
            self.value = value
            held["now"] += value.nbytes
            held["most"] = max(held["most"], held["now"])

        def __del__(self) -> None:
            held["now"] -= self.value.nbytes

    step = Intervention(network(), alpha=0.1, **options)
    step.pace = step.pace or Pace()
    with torch.autograd.graph.saved_tensors_hooks(Kept, lambda kept: kept.value):
        step.backward(batch(m), batch(OUTER))
    return held["most"]


def test_memory_is_flat_in_m_when_graphs_are_computed_again() -> None:
    assert kept_bytes(32, chunk=4) == pytest.approx(kept_bytes(8, chunk=4), rel=0.01)


@pytest.mark.parametrize("options", [{"chunk": None}, {"chunk": 4, "keeps_graphs": True}])
def test_memory_grows_with_m_when_graphs_are_kept(options: dict[str, object]) -> None:
    assert kept_bytes(32, **options) > 2.5 * kept_bytes(8, **options)


def test_pieces_hold_less_than_the_whole() -> None:
    assert kept_bytes(32, chunk=4) < kept_bytes(32, chunk=None) / 4


def test_saved_bytes_leave_constants_out() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    x = torch.randn(3, 4, requires_grad=True)
    constants = {weight.untyped_storage().data_ptr()}
    assert saved_bytes(lambda: x @ weight.t(), constants) == x.nbytes
    assert saved_bytes(lambda: x @ weight.t(), set()) == x.nbytes + weight.nbytes


def test_the_time_of_each_pass_is_told() -> None:
    step = Intervention(network(), alpha=0.1)
    assert step.seconds == {}
    step.backward(batch(4), batch(2))
    once = step.seconds
    assert set(once) == {"pass 1", "loss at θ", "pass 2", "pass 3"}
    assert all(value > 0 for value in once.values())
    step.backward(batch(4), batch(2))
    assert all(step.seconds[name] > once[name] for name in once)


def test_order_1_has_no_pass_3() -> None:
    step = Intervention(network(), alpha=0.1, order=1, measures_before=False)
    step.backward(batch(4), batch(2))
    assert set(step.seconds) == {"pass 1", "pass 2"}
