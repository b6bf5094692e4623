"""Intervals of paired differences, against hand computation, scipy, least squares and chance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cicf.report.intervals import average_interval, paired_interval


def test_one_target_has_the_interval_of_a_paired_t_test() -> None:
    ours, theirs = [71.0, 73.5, 70.2, 74.9], [70.1, 71.0, 70.9, 72.2]
    found = paired_interval([a - b for a, b in zip(ours, theirs, strict=True)])
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_two_targets_are_as_computed_by_hand() -> None:
    found = average_interval([[1.0, 3.0], [2.0, 4.0, 6.0]])
    # Means 2 and 4; squares 2 + 8 over 3 degrees; √(10/3 · (1/2 + 1/3)) / 2 = 5/6; t is 3.182446.
    assert found.mean == pytest.approx(3.0)
    assert (found.n, found.df) == (5, 3)
    assert found.high == pytest.approx(3 + 3.182446 * 5 / 6, abs=1e-5)
    assert found.low == pytest.approx(3 - 3.182446 * 5 / 6, abs=1e-5)


def test_targets_are_fixed_effects_of_a_linear_model() -> None:
    stream = np.random.default_rng(0)
    groups = [stream.normal(place, 1.0, size=n) for place, n in enumerate((2, 5, 3))]
    y = np.concatenate(groups)
    x = np.repeat(np.eye(3), [2, 5, 3], axis=0)
    b, (squares,), *_ = np.linalg.lstsq(x, y, rcond=None)
    contrast = np.full(3, 1 / 3)
    error = np.sqrt(squares / 7 * contrast @ np.linalg.inv(x.T @ x) @ contrast)
    low, high = stats.t.interval(0.95, 7, loc=contrast @ b, scale=error)
    found = average_interval([group.tolist() for group in groups])
    assert (found.mean, found.low, found.high) == pytest.approx((contrast @ b, low, high))


def test_an_interval_holds_the_truth_in_95_of_100_cases() -> None:
    stream = np.random.default_rng(1)
    truths, trials = (0.0, 4.0, -1.0), 2000
    held = 0
    for _ in range(trials):
        found = average_interval([stream.normal(t, 2.0, size=3).tolist() for t in truths])
        held += found.low <= 1.0 <= found.high
    # Four standard errors of a share of 0.95.
    assert held / trials == pytest.approx(0.95, abs=4 * (0.95 * 0.05 / trials) ** 0.5)


@pytest.mark.parametrize("by_target", [[[1.5]], [[1.0], [2.0]]])
def test_one_pair_a_target_has_no_interval(by_target: list[list[float]]) -> None:
    found = average_interval(by_target)
    assert found.mean == 1.5
    assert (found.low, found.high, found.df) == (None, None, 0)


def test_a_target_with_one_pair_borrows_the_spread_of_the_others() -> None:
    found = average_interval([[1.0, 3.0], [5.0]])
    # √(2 · (1/2 + 1)) / 2 = √3/2; t with one degree is 12.7062.
    assert found.mean == pytest.approx(3.5)
    assert found.high == pytest.approx(3.5 + 12.7062 * 3**0.5 / 2, abs=1e-3)


@given(st.lists(st.floats(-50, 50), min_size=2, max_size=6), st.floats(-50, 50))
def test_an_interval_moves_with_what_all_differences_have_in_common(
    values: list[float], shift: float
) -> None:
    one, other = paired_interval(values), paired_interval([value + shift for value in values])
    assert other.low == pytest.approx(one.low + shift, abs=1e-6)
    assert other.high == pytest.approx(one.high + shift, abs=1e-6)
