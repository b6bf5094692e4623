"""How far batch gradients are from the gradient of all images: by the equations, and as drawn."""

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.data.clusters import ClustersPerClass
from cicf.data.strata import Strata
from cicf.maths.rounded import proportional_standard_error, rounded_error, systematic_counts
from cicf.maths.stratified import (
    batch_gradient,
    cluster_moments,
    global_scope_gradient,
    random_standard_error,
    variance,
)
from cicf.report.intervals import paired_interval
from cicf.report.sampling_gap import (
    SAMPLERS,
    Sampler,
    independent_batches,
    make_sampler,
    mean_and_error,
)
from cicf.results.table import Interval

ROUNDING = 1e-12
"""The share of σ² below which a squared deviation is none but of rounding."""
ALIKE, TINY = 1e-6, 1e-300
"""How near to 1 the ratio of two predictions is when they are the same but for rounding."""
Verdict = Literal["below", "above", "not told apart"]


class Series(NamedTuple):
    """Holds the root mean square of ‖ĝ − g†‖ for one kind of batches."""

    sampler: Sampler
    equation: float
    """By Eq. 15, and by Eq. 19 with N_k = M P(K_k) as it stands."""
    predicted: float
    """The same with N_k in whole numbers, as they are drawn."""
    observed: float
    error: float
    """The standard error of `observed` over the draws."""


class Cell(NamedTuple):
    """Holds the errors at one K and M."""

    k: ClustersPerClass
    clusters: int
    """K†."""
    m: int
    series: Mapping[Sampler, Series]
    against: Mapping[Sampler, Interval]
    """Mean square of `clustered` less that of the others, in per cent of theirs."""


def measured_errors(
    g: Float[Tensor, "n p"],
    strata: Strata,
    *,
    k: ClustersPerClass,
    m: int,
    draws: int,
    seed: int,
) -> Cell:
    """Return the errors of batches of M images, by the equations and over repeated draws."""
    squares = {
        kind: squared_deviations(
            g, independent_batches(make_sampler(kind, strata, m=m, seed=seed), draws)
        )
        for kind in SAMPLERS
    }
    series = {
        kind: _series(kind, _by_equations(kind, g, strata, m), squares[kind]) for kind in SAMPLERS
    }
    against = {kind: relative_difference(squares["clustered"], squares[kind]) for kind in SAMPLERS}
    del against["clustered"]
    return Cell(k, strata.count, m, series, against)


def squared_deviations(
    g: Float[Tensor, "n p"], batches: Iterable[Int[Tensor, " m"]]
) -> Float[Tensor, " d"]:
    """Return ‖ĝ − g†‖² of every batch (Eq. 13 or 17 against Eq. 12)."""
    whole = global_scope_gradient(g)
    found = torch.stack([(batch_gradient(g, each) - whole).square().sum() for each in batches])
    return torch.where(found > ROUNDING * variance(g), found, torch.zeros_like(found))


def relative_difference(ours: Float[Tensor, " d"], others: Float[Tensor, " d"]) -> Interval:
    """Return how much smaller or larger our mean is than the others', in per cent of theirs.

    The interval is that of a ratio of means over paired draws, to first order.
    """
    scale = float(others.mean())
    if scale <= 0:
        return paired_interval((ours - others).tolist())
    ratio = float(ours.mean()) / scale
    values = (ours - ratio * others) / scale + (ratio - 1)
    return paired_interval((100 * values).tolist())


def verdict(cell: Cell, kind: Sampler) -> Verdict:
    """Return how the error of clustering compares to that of other batches, if that can be said.

    The interval has to leave zero out, and the prediction, which knows no chance, to agree: with
    K = 1 both are drawn alike, and what is observed is chance.
    """
    difference = cell.against[kind]
    ratio = cell.series["clustered"].predicted / max(cell.series[kind].predicted, TINY)
    if difference.high is not None and difference.high < 0 and ratio < 1 - ALIKE:
        return "below"
    if difference.low is not None and difference.low > 0 and ratio > 1 + ALIKE:
        return "above"
    return "not told apart"


def _by_equations(
    kind: Sampler, g: Float[Tensor, "n p"], strata: Strata, m: int
) -> tuple[float, float]:
    """Return the mean square with N_k as it stands, and in whole numbers."""
    if kind == "random":
        square = float(random_standard_error(variance(g), m=m, n=len(g)))
        return square, square
    counts = systematic_counts(strata.sizes, m)
    if kind == "class-weighted":
        _, group = strata.label.unique(return_inverse=True)
        counts = counts.new_zeros(len(counts), int(group.max()) + 1).index_add_(1, group, counts)
        strata = strata.by_class
    clusters = cluster_moments(g, strata.cluster)
    equation = proportional_standard_error(clusters, m=m)
    return float(equation), float(rounded_error(clusters, counts))


def _series(
    kind: Sampler, by_equations: tuple[float, float], squares: Float[Tensor, " d"]
) -> Series:
    mean, error = mean_and_error(squares)
    observed = mean**0.5
    # Of a root, half the relative error.
    root_error = error / (2 * observed) if observed > 0 else 0.0
    equation, predicted = (max(each, 0.0) ** 0.5 for each in by_equations)
    return Series(kind, equation, predicted, observed, root_error)
