"""Mean cosines of per-sample gradients within clusters and between them, with intervals."""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicf.core.streams import generator
from cicf.data.strata import Strata, strata_of
from cicf.maths.agreement import Agreement, agreement, cosines, resampled
from cicf.report.estimates import Estimate
from cicf.report.intervals import LEVEL

NONE = Estimate(None)
"""Where the images have no such pairs."""


class Cosines(NamedTuple):
    """Holds mean cosines of pairs, and by how much those within clusters exceed the others."""

    within: Estimate = NONE
    same_class: Estimate = NONE
    elsewhere: Estimate = NONE
    beyond_same_class: Estimate = NONE
    beyond_elsewhere: Estimate = NONE
    left_out: int = 0
    """Images whose gradient is zero, and so has no direction."""


def measured_agreement(
    gram: Float[Tensor, "n n"], strata: Strata, *, resamples: int, seed: int
) -> Cosines:
    """Return the mean cosines, with percentile intervals of a bootstrap within given clusters."""
    has_direction = gram.diagonal() > 0
    kept = has_direction.nonzero()[:, 0]
    left_out = len(gram) - len(kept)
    if not len(kept):
        return Cosines(left_out=left_out)
    strata = strata_of(strata.cluster[kept], strata.label[strata.cluster[kept]])
    cosine = cosines(gram[kept][:, kept])
    ones = torch.ones(1, len(kept), dtype=gram.dtype)
    stream = generator(seed, "sampling", "bootstrap")
    weights = torch.cat([ones, resampled(strata.cluster, count=resamples, generator=stream)])
    rows = [
        torch.stack(_compared(agreement(cosine, strata.cluster, strata.label, weight=each)))
        for each in weights
    ]
    means, *others = torch.stack(rows).unbind()
    columns = torch.stack(others).unbind(dim=1)
    within, same_class, elsewhere, *beyond = map(_estimate, means, columns)
    return Cosines(within, same_class, elsewhere, beyond[0], beyond[1], left_out)


def _compared(found: Agreement) -> tuple[Float[Tensor, ""], ...]:
    return (*found, found.within - found.same_class, found.within - found.elsewhere)


def _estimate(mean: Float[Tensor, ""], resamples: Float[Tensor, " b"]) -> Estimate:
    resamples = resamples[~resamples.isnan()]
    if mean.isnan() or not len(resamples):
        return NONE
    tails = torch.tensor([(1 - LEVEL) / 2, (1 + LEVEL) / 2], dtype=resamples.dtype)
    low, high = resamples.quantile(tails).tolist()
    return Estimate(float(mean), low, high)
