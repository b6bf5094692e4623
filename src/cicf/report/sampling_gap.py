"""The gap E between batches of clustering-then-sampling and other batches, over repeated draws."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.data.clusters import ClustersPerClass
from cicf.data.samplers import ClassWeightedSampler, RandomSampler, StepSampler, StratifiedSampler
from cicf.data.strata import Strata
from cicf.maths.stratified import gap

Sampler = Literal["random", "class-weighted", "clustered"]
SAMPLERS: tuple[Sampler, ...] = ("random", "class-weighted", "clustered")


class Gap(NamedTuple):
    """Holds E = Σ_k |N_k − R_k| of one kind of batches, on average."""

    k: ClustersPerClass
    clusters: int
    """K†."""
    m: int
    against: Sampler
    mean: float
    error: float
    """Its standard error over the draws."""
    by_chance: float
    """The E of groups of these sizes, whatever is in them: what counting alone gives."""


def measured_gaps(
    strata: Strata, *, k: ClustersPerClass, m: int, draws: int, seed: int
) -> list[Gap]:
    """Return E against random and against class-weighted random batches."""
    ours = StratifiedSampler(strata, size=m, seed=seed)
    counts = [ours.counts(step) for step in range(draws)]
    found = []
    for against in SAMPLERS[:2]:
        others = [
            strata.cluster[batch].bincount(minlength=strata.count)
            for batch in independent_batches(make_sampler(against, strata, m=m, seed=seed), draws)
        ]
        gaps = [gap(*pair) for pair in zip(counts, others, strict=True)]
        mean, error = mean_and_error(torch.tensor(gaps, dtype=torch.float64))
        chance = sum(_gap_by_chance(each, strata, against) for each in counts) / draws
        found.append(Gap(k, strata.count, m, against, mean, error, chance))
    return found


def make_sampler(kind: Sampler, strata: Strata, *, m: int, seed: int) -> StepSampler:
    """Return the sampler of this name for inner batches of size M."""
    if kind == "random":
        return RandomSampler(len(strata.cluster), size=m, seed=seed, role="inner")
    make = StratifiedSampler if kind == "clustered" else ClassWeightedSampler
    return make(strata, size=m, seed=seed)


def independent_batches(sampler: StepSampler, draws: int) -> Iterator[Int[Tensor, " m"]]:
    """Yield batches that are independent of each other."""
    # A round of random batches shares out all images: two halves would deviate by the same.
    stride = sampler.num_images // sampler.size if isinstance(sampler, RandomSampler) else 1
    for draw in range(draws):
        yield sampler.batch(draw * stride)


def mean_and_error(values: Float[Tensor, " d"]) -> tuple[float, float]:
    """Return the mean of independent values, and its standard error."""
    return float(values.mean()), float(values.std()) / len(values) ** 0.5


def _gap_by_chance(counts: Int[Tensor, " k"], strata: Strata, against: Sampler) -> float:
    """Return the mean of E for these N_k, by the hypergeometric distribution of each R_k."""
    group = strata.label if against == "class-weighted" else torch.zeros_like(strata.label)
    total = 0.0
    for k, (count, size) in enumerate(zip(counts.tolist(), strata.sizes.tolist(), strict=True)):
        here = group == group[k]
        images, places = int(strata.sizes[here].sum()), int(counts[here].sum())
        total += _mean_distance(images, size, places, count)
    return total


@lru_cache(maxsize=4096)
def _mean_distance(images: int, marked: int, places: int, count: int) -> float:
    """Return E|count − R|, R of `places` images drawn out of `images` being marked."""
    from scipy.stats import hypergeom

    drawn = torch.arange(min(marked, places) + 1)
    chances = torch.from_numpy(hypergeom.pmf(drawn.numpy(), images, marked, places))
    return float(chances @ (drawn - count).abs().double())
