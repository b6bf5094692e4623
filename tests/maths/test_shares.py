"""Gradients that are summed over pieces, a parameter at a time."""

import pytest
import torch
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile

from cicf import Intervention
from cicf.maths import moving
from cicf.maths.shares import Sums


def leaves(*sizes: int) -> list[Tensor]:
    return [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]


@pytest.mark.parametrize("num_pieces", [1, 2, 5])
def test_sums_are_what_autograd_gives_for_all_pieces_together(num_pieces: int) -> None:
    wrt = leaves(3, 4)
    pieces = torch.randn(num_pieces, 3, 4, dtype=torch.float64)

    def loss(piece: Tensor) -> Tensor:
        return (wrt[0].sin() @ piece @ wrt[1].exp()).square()

    sums = Sums(wrt, num_pieces=num_pieces)
    for piece in pieces:
        sums.add_gradient([loss(piece)])
    expected = torch.autograd.grad(sum(map(loss, pieces)), wrt)
    for found, value in zip(sums.gradients, expected, strict=True):
        torch.testing.assert_close(found, value, rtol=1e-13, atol=0)


def test_a_gradient_that_two_parameters_share_is_added_to_each_once() -> None:
    a, b = leaves(3, 3)
    sums = Sums([a, b], num_pieces=3)
    for factor in (1.0, 2.0, 3.0):
        # Autograd hands one and the same tensor to both.
        sums.add_gradient([(factor * (a + b)).sum()])
    assert [value.tolist() for value in sums.gradients] == [[6.0] * 3] * 2


def test_a_parameter_that_no_piece_reaches_has_no_gradient() -> None:
    a, b = leaves(2, 2)
    sums = Sums([a, b], num_pieces=2)
    for _ in range(2):
        sums.add_gradient([a.sum()])
    assert sums.gradients[1] is None


def test_a_sparse_gradient_is_added_as_a_dense_one() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    sums = Sums([table.weight], num_pieces=2)
    for rows in ([0, 1], [1, 3]):
        sums.add_gradient([table(torch.tensor(rows)).sum()])
    assert sums.gradients[0].tolist() == [[1, 1], [2, 2], [0, 0], [1, 1]]


def test_dependence_on_others_is_told() -> None:
    a, b = leaves(2, 2)
    sums = Sums([a], num_pieces=2)
    assert not sums.add_gradient([a.sum()], others=[b])
    assert sums.add_gradient([(a * b).sum()], others=[b])


def test_nothing_is_watched_afterwards() -> None:
    (a,) = leaves(2)
    sums = Sums([a], num_pieces=2)
    sums.add_gradient([a.sum()])
    (again,) = torch.autograd.grad(2 * a.sum(), a)
    assert again.tolist() == [2, 2]
    assert sums.gradients[0].tolist() == [1, 1]


def most_held(model: nn.Module, step: Intervention, inner: int) -> float:
    """Return the most memory that is allocated at once during a step, in copies of the model."""
    batches = [(torch.randn(m, 300), torch.randint(3, (m,))) for m in (inner, 8)]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step.backward(*batches)
    events = profiler.profiler.kineto_results.events()
    held = most = 0
    for event in sorted(events, key=lambda each: each.start_ns()):
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most / sum(p.nbytes for p in model.parameters())


@pytest.mark.parametrize("inner", [8, 32])
def test_a_step_in_pieces_holds_two_copies_of_a_model(
    inner: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are θ† in the memory of g† and v, then v and the sum of pass 3, which takes the result.

    Beside them there are a piece and the stretch of θ − θ† that is looked at.
    """
    monkeypatch.setattr(moving, "_STRETCH", 1000)
    model = nn.Sequential(nn.Linear(300, 400), nn.Tanh(), nn.Linear(400, 300), nn.Linear(300, 3))
    step = Intervention(model, alpha=0.1, chunk=4, measures_before=False)
    step.backward(*[(torch.randn(8, 300), torch.randint(3, (8,)))] * 2)
    model.zero_grad(set_to_none=True)
    assert 1.9 < most_held(model, step, inner) < 2.2
