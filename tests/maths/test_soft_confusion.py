"""Soft class confusions and their divergence, against loops in NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.soft_confusion import (
    LEAST,
    Confusions,
    misalignment,
    soft_confusions,
    symmetric_divergence,
)

pytestmark = pytest.mark.usefixtures("float64")
C = 4


def rows_by_loops(logits: Tensor, y: Tensor, temperature: float) -> dict[int, np.ndarray]:
    """Return s_q of each class that there are samples of."""
    found = {}
    for q in range(logits.shape[1]):
        own = [row.numpy() for row, label in zip(logits, y.tolist(), strict=True) if label == q]
        if not own:
            continue
        powers = np.exp(sum(own) / len(own) / temperature)
        found[q] = powers / powers.sum()
    return found


def divergence_by_loops(a: dict[int, np.ndarray], b: dict[int, np.ndarray], classes: int) -> float:
    total = 0.0
    for q in range(classes):
        if q in a and q in b:
            p, r = np.maximum(a[q], LEAST), np.maximum(b[q], LEAST)
            total += (np.sum(p * np.log(p / r)) + np.sum(r * np.log(r / p))) / 2
    return total / classes


def domain(seed: int, *, size: int = 12, lacks: int = -1) -> tuple[Tensor, Tensor]:
    stream = torch.Generator().manual_seed(seed)
    y = torch.arange(size) % C
    kept = y != lacks
    return 3 * torch.randn(size, C, generator=stream)[kept], y[kept]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 99),
    temperature=st.floats(0.5, 5),
    lacks=st.sampled_from([(-1, -1), (1, -1), (1, 2), (3, 3)]),
)
def test_domains_differ_by_what_loops_say(
    seed: int, temperature: float, lacks: tuple[int, int]
) -> None:
    torch.set_default_dtype(torch.float64)
    one, other = domain(seed, lacks=lacks[0]), domain(seed + 100, lacks=lacks[1], size=17)
    found = misalignment(
        *(soft_confusions(*each, temperature=temperature) for each in (one, other))
    )
    expected = divergence_by_loops(
        *(rows_by_loops(*each, temperature) for each in (one, other)), classes=C
    )
    assert float(found) == pytest.approx(expected, abs=1e-10)


def test_a_row_is_the_softmax_of_the_mean_logits_of_its_class() -> None:
    logits, y = domain(0)
    found = soft_confusions(logits, y, temperature=2.0)
    for q, row in rows_by_loops(logits, y, 2.0).items():
        np.testing.assert_allclose(found.s[q].numpy(), row, rtol=0, atol=1e-12)
    assert found.is_present.all()


def test_with_a_linear_head_a_row_is_that_of_the_mean_features() -> None:
    features, y = torch.randn(12, 5), torch.arange(12) % C
    head = torch.nn.Linear(5, C)
    found = soft_confusions(head(features), y, temperature=2.0)
    for q in range(C):
        row = (head(features[y == q].mean(dim=0)) / 2.0).softmax(dim=0)
        torch.testing.assert_close(found.s[q], row, rtol=0, atol=1e-12)


def test_a_domain_does_not_differ_from_itself() -> None:
    one = soft_confusions(*domain(0), temperature=2.0)
    assert misalignment(one, one) == 0


def test_it_makes_no_difference_which_domain_comes_first() -> None:
    one, other = (soft_confusions(*domain(seed), temperature=2.0) for seed in (0, 1))
    torch.testing.assert_close(misalignment(one, other), misalignment(other, one))


def test_domains_without_a_common_class_do_not_differ_and_have_a_gradient_of_zero() -> None:
    logits = torch.randn(6, C, requires_grad=True)
    y = torch.tensor([0, 0, 1, 2, 2, 3])
    first, second = y < 2, y >= 2
    found = misalignment(
        soft_confusions(logits[first], y[first], temperature=2.0),
        soft_confusions(logits[second], y[second], temperature=2.0),
    )
    (g,) = torch.autograd.grad(found, logits)
    assert found == 0
    assert not g.any()


def test_the_gradient_is_the_slope() -> None:
    (one, y), (other, labels) = domain(0, lacks=2), domain(1, size=9)

    def loss(a: Tensor, b: Tensor) -> Tensor:
        return misalignment(
            soft_confusions(a, y, temperature=2.0), soft_confusions(b, labels, temperature=2.0)
        )

    assert torch.autograd.gradcheck(loss, (one.requires_grad_(), other.requires_grad_()))


def test_probabilities_of_zero_are_raised_before_the_logarithm() -> None:
    p, q = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    expected = (1 - LEAST) * np.log(1 / LEAST)
    assert float(symmetric_divergence(p, q)) == pytest.approx(expected, rel=1e-12)


def test_the_sum_over_common_classes_is_divided_by_all_classes() -> None:
    sure, torn = torch.tensor([[0.9, 0.1], [0.1, 0.9]]), torch.tensor([[0.5, 0.5], [0.5, 0.5]])
    both, first = torch.tensor([True, True]), torch.tensor([True, False])
    whole = misalignment(Confusions(sure, both), Confusions(torn, both))
    half = misalignment(Confusions(sure, both), Confusions(torn, first))
    torch.testing.assert_close(half, whole / 2)
