"""Numbers over images have intervals, also at the ends of the scale."""

import numpy as np
import pytest
from scipy import stats

from cicf.report.estimates import Estimate, bootstrapped, mean_of, rate_of


@pytest.mark.parametrize(("hits", "n"), [(0, 12), (5, 12), (12, 12), (40, 599)])
def test_interval_of_a_rate_is_wilson_s(hits: int, n: int) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(method="wilson")
    found = rate_of([1.0] * hits + [0.0] * (n - hits))
    assert found == pytest.approx((hits / n, expected.low, expected.high), abs=1e-12)


def test_interval_of_a_mean_is_student_s() -> None:
    values = [0.1, 0.4, 0.35, 0.8]
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert mean_of(values) == pytest.approx((np.mean(values), low, high))


def test_nothing_has_no_value_and_one_has_no_interval() -> None:
    assert mean_of([]) == rate_of([]) == Estimate(None, None, None)
    assert mean_of([0.25]) == Estimate(0.25, None, None)


def test_bootstrapped_interval_is_around_the_value() -> None:
    found = bootstrapped(3.0, np.array([1.0, 2.0, 3.0]))
    assert found == pytest.approx((3.0, 3 - 1.959964, 3 + 1.959964))
