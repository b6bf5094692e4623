"""How much a prediction depends on what should not matter: the measures, as functions of tables.

A classifier that has learnt the cause keeps its predictions when the confounder is set, do(C), and
changes them to the new label when the cause is set. What is measured here are predictions; who made
them, and of which images, is not known.
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from cicf.report.estimates import Estimate, mean_of, rate_of


def share(values: Float[Tensor, " n"] | Bool[Tensor, " n"]) -> Estimate:
    """Return the mean of truths, or of shares, with its interval over the images."""
    return rate_of(values.double().tolist())


def change(before: Float[Tensor, " n"], after: Float[Tensor, " n"]) -> Estimate:
    """Return the mean of after − before, image by image, with its interval."""
    return mean_of((after - before).double().tolist())


class Responses(NamedTuple):
    """Holds the predictions for n images before each of k confounders, observed or not.

    `kept` has the image's own cause, of label y, and `swapped` another one in its place, of label
    new_y. Every strength of a relation between label and confounder picks from these.
    """

    kept: Int[Tensor, "n k"]
    swapped: Int[Tensor, "n k"]
    y: Int[Tensor, " n"]
    new_y: Int[Tensor, " n"]


class Measures(NamedTuple):
    """Holds what is true of each image where confounder and label have some relation.

    Under do(confounder) it is a share: of all other values of the confounder.
    """

    accuracy: Float[Tensor, " n"]
    """As observed, where nothing is set."""
    stays: Float[Tensor, " n"]
    """do(confounder): the prediction stays; causal is 1."""
    kept_accuracy: Float[Tensor, " n"]
    """do(confounder): it is the label."""
    misled: Float[Tensor, " n"]
    """do(confounder) to what another label has: it is that label; causal is 0."""
    changes: Float[Tensor, " n"]
    """do(cause): the prediction changes."""
    new_accuracy: Float[Tensor, " n"]
    """do(cause): it is the new label; causal is 1."""


def measures(found: Responses, confounder: Int[Tensor, " n"]) -> Measures:
    """Return how predictions depend on cause and confounder where this confounder is observed."""
    observed = _picked(found.kept, confounder)
    after = _picked(found.swapped, confounder)
    return Measures(
        accuracy=(observed == found.y).double(),
        stays=_over_others(found.kept == observed[:, None], confounder),
        kept_accuracy=_over_others(found.kept == found.y[:, None], confounder),
        misled=_over_others(found.kept == torch.arange(found.kept.shape[1]), found.y),
        changes=(after != observed).double(),
        new_accuracy=(after == found.new_y).double(),
    )


def other_labels(y: Int[Tensor, " n"], stream: torch.Generator) -> Int[Tensor, " n"]:
    """Return for each image the place of another one at random, whose label is not its own."""
    is_other = (y[:, None] != y[None]).double()
    return torch.multinomial(is_other, 1, generator=stream)[:, 0]


class Flip(NamedTuple):
    """Is the first intervention that changes a prediction: the weakest, then the largest drop."""

    image: int
    variant: int
    level: int
    drop: float
    """What the probability of the class that was predicted loses."""
    before: int
    after: int
    sure: float
    """The probability of what was predicted before."""
    new_sure: float
    """The probability of what is predicted now."""


def flips(
    plain: Float[Tensor, "n c"],
    varied: Float[Tensor, "n v c"],
    levels: Int[Tensor, " v"],
) -> list[Flip]:
    """Return the images whose prediction some variant changes, those that flip first at the front.

    `levels` say how strong each variant is, from 0, the weakest.
    """
    before, after = plain.argmax(dim=1), varied.argmax(dim=2)
    drops = probability(plain[:, None], before) - probability(varied, before)
    found = []
    for i in range(len(plain)):
        places = (after[i] != before[i]).nonzero()[:, 0].tolist()
        options = [(int(levels[v]), -float(drops[i, v]), v) for v in places]
        if options:
            level, drop, v = min(options)
            classes = int(before[i]), int(after[i, v])
            sure = float(plain[i, classes[0]]), float(varied[i, v, classes[1]])
            found.append(Flip(i, v, level, -drop, *classes, *sure))
    return sorted(found, key=lambda flip: (flip.level, -flip.drop, flip.image))


def probability(rows: Float[Tensor, "n v c"], classes: Int[Tensor, " n"]) -> Float[Tensor, "n v"]:
    """Return the probability of one class for each image, in each of its variants."""
    return rows.gather(2, classes[:, None, None].expand(-1, rows.shape[1], 1))[:, :, 0]


def _picked(table: Int[Tensor, "n k"], places: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    return table.gather(1, places[:, None])[:, 0]


def _over_others(holds: Bool[Tensor, "n k"], observed: Int[Tensor, " n"]) -> Float[Tensor, " n"]:
    """Return the share of all values but the observed one at which something holds."""
    is_other = torch.arange(holds.shape[1]) != observed[:, None]
    return (holds & is_other).double().sum(dim=1) / (holds.shape[1] - 1)
