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
        for name in ("cluster", "label"):
            object.__setattr__(self, name, whole_numbers(getattr(self, name), name))
        if self.cluster.numel() == 0:
            raise DataError("there are no images to stratify; pass at least one")
        ids = self.cluster.unique()
        if not torch.equal(ids, torch.arange(len(self.label))):
            raise DataError(
                f"{len(self.label)} clusters were named, but the images fall into {len(ids)}, "
                f"numbered {int(ids[0])} to {int(ids[-1])}; number them from 0 and leave none empty"
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

    @cached_property
    def by_class(self) -> "Strata":
        """Return the coarser strata in which each class is one cluster."""
        labels, of_cluster = self.label.unique(return_inverse=True)
        return Strata(of_cluster[self.cluster], labels)


def strata_of(groups: Int[Tensor, " n"] | list[int], y: Int[Tensor, " n"] | list[int]) -> Strata:
    """Return strata from any numbering of groups within each class, renumbered class by class.

    Within a class the clusters come in the order of their first image, so that the numbering does
    not depend on the one that was given.
    """
    group, label = whole_numbers(groups, "groups"), whole_numbers(y, "y")
    if len(group) != len(label):
        raise DataError(f"there are {len(group)} groups for {len(label)} labels; pass one each")
    cluster = torch.empty_like(label)
    labels: list[int] = []
    for each in label.unique().tolist():
        here = (label == each).nonzero()[:, 0]
        for number in dict.fromkeys(group[here].tolist()):
            cluster[here[group[here] == number]] = len(labels)
            labels.append(each)
    return Strata(cluster, torch.tensor(labels))


def whole_numbers(values: object, name: str) -> Int[Tensor, " n"]:
    """Return one whole number per image as int64 on the CPU, or say what is wrong with them."""
    try:
        found = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(
            f"{name} must be whole numbers, one per image, but is {values!r:.40}; convert it"
        ) from error
    if found.shape == (0,):
        return torch.empty(0, dtype=torch.int64)
    if found.ndim != 1 or found.is_floating_point() or found.is_complex():
        raise DataError(
            f"{name} must be whole numbers, one per image, but has shape {list(found.shape)} and "
            f"type {str(found.dtype).removeprefix('torch.')}; convert it"
        )
    return found.long().contiguous()
