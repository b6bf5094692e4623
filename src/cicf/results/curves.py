"""Curves of results: accuracy against one option, never of different data or protocols."""

from cicf.core.frozen import Frozen
from cicf.results.axes import Over, Value
from cicf.results.table import Interval

Accuracies = dict[str, dict[int, float]]
"""In percent, by domain and seed."""


class Point(Frozen):
    """Holds what one value of the option came to."""

    value: Value
    accuracies: Accuracies
    mean: Interval
    """The mean over domains of their means over seeds, with its 95 % interval."""
    error: float | None
    """The standard error of that mean, from what varies over seeds; None for one seed."""
    difference: Interval | None = None
    """To the baseline, paired by domain and seed."""


class Curve(Frozen):
    """Holds the values of the option for runs that share all else."""

    title: str
    data: str
    fingerprint: str
    protocol: str
    model: str
    method: str
    domains: tuple[str, ...]
    points: tuple[Point, ...]
    baseline: Point | None
    """Plain training on the same images; its value is its label."""
    caption: str
    """What the points and their bars are."""
    footnotes: tuple[str, ...]


class Ablation(Frozen):
    """Holds the curves of one option, and a sentence for each run that is in none."""

    over: Over
    option: str
    axis: str
    """What the values are, in words."""
    is_ordered: bool
    curves: tuple[Curve, ...]
    skipped: tuple[str, ...]
