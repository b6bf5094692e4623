"""The match function of MatchDG: images of other domains that show the same class."""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Choice = Callable[[Int[Tensor, " b"], Int[Tensor, " c"]], Int[Tensor, " b"]]
"""base, candidates → for each image of the base one of the candidates, all as places."""


def matched_places(
    y: Int[Tensor, " n"], domain: Int[Tensor, " n"], choose: Choice
) -> Int[Tensor, "g d"]:
    """Return the groups of matched images, a column for each domain in ascending order.

    Of each class, the base is the domain with most images of it, the first in a tie. Every image of
    the base is a group with one partner of the class from each other domain, which `choose` finds.
    Where a domain lacks the class, the image of the base itself stands in its column.
    """
    domains = domain.unique().tolist()
    groups = []
    for label in y.unique().tolist():
        places = [((y == label) & (domain == each)).nonzero()[:, 0] for each in domains]
        base = max(places, key=len)
        columns = [
            base if found is base or len(found) == 0 else choose(base, found) for found in places
        ]
        groups.append(torch.stack(columns, dim=1))
    return torch.cat(groups)


def at_random(base: Int[Tensor, " b"], candidates: Int[Tensor, " c"]) -> Int[Tensor, " b"]:
    """Return a random candidate for each image of the base, by torch's global generator."""
    return candidates[torch.randint(len(candidates), (len(base),))]


def nearest_by(features: Float[Tensor, "n f"]) -> Choice:
    """Return a choice of the candidate with the least Euclidean distance, the first in a tie."""

    def choose(base: Int[Tensor, " b"], candidates: Int[Tensor, " c"]) -> Int[Tensor, " b"]:
        # By differences: with |a|² − 2ab + |b|², near neighbours would be a matter of rounding.
        distances = torch.cdist(
            features[base],
            features[candidates],
            compute_mode="donot_use_mm_for_euclid_dist",
        )
        return candidates[distances.argmin(dim=1)]

    return choose
