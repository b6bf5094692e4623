"""A number over images, and how sure it is: the interval is over the images alone.

It says what other images of the same kind would give with the same networks, and nothing of what
other trainings would give.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from cicf.report.intervals import LEVEL, paired_interval

_Z = float(ndtri((1 + LEVEL) / 2))


class Estimate(NamedTuple):
    """Holds a value, and where its true value lies with 95 % confidence; None is not known."""

    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def percents(self) -> tuple[float, float, float]:
        """Return value, low and high in percent, all of which have to be known."""
        assert self.value is not None
        assert self.low is not None
        assert self.high is not None
        return 100 * self.value, 100 * self.low, 100 * self.high

    @property
    def is_above_zero(self) -> bool:
        """Tell whether the whole interval is."""
        return self.low is not None and self.low > 0

    @property
    def is_below_zero(self) -> bool:
        """Tell whether the whole interval is."""
        return self.high is not None and self.high < 0


def mean_of(values: Sequence[float]) -> Estimate:
    """Return the mean, with its interval by t; of paired differences, that of the difference."""
    if not values:
        return Estimate(None)
    found = paired_interval(values)
    return Estimate(found.mean, found.low, found.high)


def rate_of(hits: Sequence[float]) -> Estimate:
    """Return the share of hits with the interval of Wilson (1927), which 0 and 1 have as well.

    A hit may be a fraction. Then the interval is on the safe side: no fractions with mean p vary
    more than p (1 − p).
    """
    n = len(hits)
    if n == 0:
        return Estimate(None)
    rate = sum(hits) / n
    centre = (rate + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
    half = _Z / (1 + _Z**2 / n) * sqrt(rate * (1 - rate) / n + _Z**2 / (4 * n**2))
    # At the ends the formula is exact, and its rounding is not.
    low = 0.0 if rate == 0 else max(0.0, centre - half)
    return Estimate(rate, low, 1.0 if rate == 1 else min(1.0, centre + half))


def bootstrapped(value: float, resampled: Float[np.ndarray, " b"]) -> Estimate:
    """Return a value with 1.96 standard errors to each side, as found by drawing images anew."""
    half = _Z * float(resampled.std(ddof=1))
    return Estimate(value, value - half, value + half)
