"""How and when the clusters of a training set are made."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt, PositiveInt
from torch import nn
from torch.utils.data import Dataset

from cicf.core import ConfigError
from cicf.core.frozen import Frozen
from cicf.data.clusters import ClustersPerClass, check_clusters_per_class, cluster_by_class
from cicf.data.features import dataset_features
from cicf.data.strata import Strata


def cluster_dataset(
    dataset: Dataset[Sequence[object]],
    *,
    model: nn.Module | None = None,
    layer: str | None = None,
    resolution: int = 16,
    clusters_per_class: ClustersPerClass = 3,
    seed: int = 0,
    num_workers: int = 0,
) -> Strata:
    """Return the clusters of a data set of un-augmented (image, label, ...).

    With a model they are made on its pooled features, which is right for one that has been trained;
    without, on pixels at low resolution.
    """
    features, y = dataset_features(
        dataset, model=model, layer=layer, resolution=resolution, num_workers=num_workers
    )
    return cluster_by_class(features, y, clusters_per_class=clusters_per_class, seed=seed)


@dataclass(frozen=True, slots=True)
class Clustering:
    """Says on what the images are clustered, and in which epochs they are clustered anew."""

    source: Literal["network", "pixels"] = "pixels"
    """`network`: pooled features of the model, right with pretrained weights; `pixels`: without."""
    warmup: int = 0
    """With `network`, epochs after which the features are trusted; before, pixels stand in."""
    every: int | None = None
    """Epochs between clusterings; None to cluster only once it can be done as `source` says."""
    clusters_per_class: ClustersPerClass = 3
    """K, or `auto`."""
    layer: str | None = None
    """With `network`, the layer to read; None for what enters the last linear one."""
    resolution: int = 16
    """Side of the images in pixels that stand for pixels."""
    seed: int = 0

    def __post_init__(self) -> None:
        check_clusters_per_class(self.clusters_per_class)
        if self.source not in ("network", "pixels"):
            raise ConfigError(f"source={self.source!r} must be 'network' or 'pixels'")
        if self.warmup < 0 or (self.warmup and self.source == "pixels"):
            raise ConfigError(
                f"warmup={self.warmup} must be 0 or more epochs, and goes with source='network'"
            )
        if self.every is not None and (self.every < 1 or self.source == "pixels"):
            raise ConfigError(
                f"every={self.every} must be at least 1 epoch, and goes with source='network': "
                "pixels do not change"
            )

    def is_due(self, epoch: int) -> bool:
        """Tell whether this epoch, counted from 0, begins with a new clustering."""
        if epoch in (0, self.warmup):
            return True
        return (
            self.every is not None
            and epoch > self.warmup
            and (epoch - self.warmup) % self.every == 0
        )

    def strata(self, dataset: Dataset[Sequence[object]], model: nn.Module, epoch: int) -> Strata:
        """Return the clusters of the un-augmented training set as of this epoch."""
        reads_network = self.source == "network" and epoch >= self.warmup
        return cluster_dataset(
            dataset,
            model=model if reads_network else None,
            layer=self.layer if reads_network else None,
            resolution=self.resolution,
            clusters_per_class=self.clusters_per_class,
            seed=self.seed,
        )


class ClustersConfig(Frozen):
    """Says how the training set is clustered."""

    per_class: PositiveInt | Literal["auto"] = 3
    """K, the clusters of each class, or `auto`."""
    source: Literal["pixels", "network"] = "pixels"
    """What is clustered: images at low resolution, or what the network makes of them."""
    resolution: PositiveInt = 16
    """With `pixels`, the side in pixels."""
    layer: str | None = None
    """With `network`, the layer to read; None for what enters the last linear one."""
    warmup: NonNegativeInt = 0
    """With `network`, epochs after which its features are trusted; before, pixels stand in."""
    every: PositiveInt | None = None
    """With `network`, epochs between clusterings; None to cluster once."""

    def clustering(self, seed: int) -> Clustering:
        """Return the plan of the clustering."""
        return Clustering(
            source=self.source,
            warmup=self.warmup,
            every=self.every,
            clusters_per_class=self.per_class,
            layer=self.layer,
            resolution=self.resolution,
            seed=seed,
        )
