"""The K† clusters of the training set."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Int
from torch import Tensor

from cicf.core import DataError


@dataclass(frozen=True, eq=False)
class Strata:
    """Says which cluster every image belongs to, and which class every cluster belongs to.

    Clusters are numbered 0 … K† − 1 and none is empty.
    """

    cluster: Int[Tensor, " n"]
    label: Int[Tensor, " k"]

    def __post_init__(self) -> None:
        if self.cluster.numel() == 0:
            raise DataError("there are no images to stratify; pass at least one")
        sizes = self.cluster.bincount(minlength=len(self.label))
        if len(sizes) != len(self.label) or not bool((sizes > 0).all()):
            raise DataError(
                f"{len(self.label)} clusters were named, but the images fall into clusters "
                f"{self.cluster.unique().tolist()}; number them from 0 and leave none empty"
            )

    @property
    def count(self) -> int:
        """Return K†."""
        return len(self.label)

    @cached_property
    def sizes(self) -> Int[Tensor, " k"]:
        """Return N_k^K, the number of images in each cluster."""
        return self.cluster.bincount()

    @cached_property
    def members(self) -> tuple[Int[Tensor, " _"], ...]:
        """Return the images of each cluster, in ascending order."""
        order = self.cluster.argsort(stable=True)
        return tuple(order.split(self.sizes.tolist()))

    def by_class(self) -> "Strata":
        """Return the coarser strata in which each class is one cluster."""
        labels, of_cluster = self.label.unique(return_inverse=True)
        return Strata(of_cluster[self.cluster], labels)


def strata_of(groups: Int[Tensor, " n"], y: Int[Tensor, " n"]) -> Strata:
    """Return strata from any numbering of groups within each class, renumbered class by class.

    Within a class the clusters come in the order of their first image, so that the numbering does
    not depend on the one that was given.
    """
    cluster = torch.empty_like(y)
    labels: list[int] = []
    for label in y.unique().tolist():
        here = (y == label).nonzero()[:, 0]
        for group in dict.fromkeys(groups[here].tolist()):
            cluster[here[groups[here] == group]] = len(labels)
            labels.append(label)
    return Strata(cluster, torch.tensor(labels))
