"""Confidence intervals of paired differences, with targets as fixed effects."""

from collections.abc import Sequence
from math import sqrt
from statistics import fmean

from scipy.special import stdtrit

from cicf.results.table import Interval

LEVEL = 0.95
"""The confidence of every interval."""


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return the mean difference on one target, with its interval by t with n - 1."""
    return average_interval([differences])


def average_interval(by_target: Sequence[Sequence[float]]) -> Interval:
    """Return the mean over targets of their mean differences, with its interval.

    The targets are the ones there are, not a sample of others: only what varies within them, over
    seeds, counts. Its variance is pooled over the targets, and so are the degrees of freedom. With
    one pair a target there is no interval.
    """
    counts = [len(each) for each in by_target]
    mean, df = fmean(fmean(each) for each in by_target), sum(counts) - len(counts)
    error = pooled_error(by_target)
    if error is None:
        return Interval(mean=mean, n=sum(counts), df=0)
    half = float(stdtrit(df, (1 + LEVEL) / 2)) * error
    return Interval(mean=mean, n=sum(counts), df=df, low=mean - half, high=mean + half)


def pooled_error(by_target: Sequence[Sequence[float]]) -> float | None:
    """Return the standard error of the mean over targets of their means; None for one value each.

    The variance is that within the targets, pooled over them.
    """
    counts = [len(each) for each in by_target]
    df = sum(counts) - len(counts)
    if df == 0:
        return None
    squares = sum((value - fmean(each)) ** 2 for each in by_target for value in each)
    return sqrt(squares / df * sum(1 / count for count in counts)) / len(counts)
