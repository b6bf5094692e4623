"""Images, their clusters, and the batches drawn from them."""

from cicf.data.clustering import Clustering, cluster_dataset
from cicf.data.clusters import bic, cluster_by_class
from cicf.data.features import dataset_features, pixel_features, pooled_features
from cicf.data.samplers import ClassWeightedSampler, RandomSampler, SamplerState, StratifiedSampler
from cicf.data.strata import Strata, strata_of

__all__ = [
    "ClassWeightedSampler",
    "Clustering",
    "RandomSampler",
    "SamplerState",
    "Strata",
    "StratifiedSampler",
    "bic",
    "cluster_by_class",
    "cluster_dataset",
    "dataset_features",
    "pixel_features",
    "pooled_features",
    "strata_of",
]
