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
    means = [fmean(each) for each in by_target]
    mean, df = fmean(means), sum(counts) - len(counts)
    if df == 0:
        return Interval(mean=mean, n=sum(counts), df=0)
    squares = sum(
        (value - centre) ** 2
        for each, centre in zip(by_target, means, strict=True)
        for value in each
    )
    error = sqrt(squares / df * sum(1 / count for count in counts)) / len(counts)
    half = float(stdtrit(df, (1 + LEVEL) / 2)) * error
    return Interval(mean=mean, n=sum(counts), df=df, low=mean - half, high=mean + half)
