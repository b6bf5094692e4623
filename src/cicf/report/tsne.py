"""What networks make of images before they decide, laid out in a plane by t-SNE."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from sklearn.manifold import TSNE

from cicf.core import DataError
from cicf.data.domains import DomainDataset
from cicf.data.features import pooled_features
from cicf.experiment import LoadedRun
from cicf.report.chosen import class_names, domain_names, image_name
from cicf.report.compactness import scatter_ratio, silhouette

_BATCH = 64
_PERPLEXITY = 30.0
"""How many neighbours a point is to have, as scikit-learn has it; fewer where images are few."""
_FEWEST = 4


class Embedding(NamedTuple):
    """Holds a point of the plane for each image, and measures of the features behind them."""

    points: Float[np.ndarray, "n 2"]
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    images: tuple[str, ...]
    silhouette: float
    scatter_ratio: float


def embedded(
    run: LoadedRun, data: DomainDataset, indices: Sequence[int], *, seed: int = 0
) -> Embedding:
    """Return where the images lie by t-SNE, and how compact their classes are as features."""
    return embedding_of(features_of(run, data, indices), data, indices, seed=seed)


def embedding_of(
    features: Float[np.ndarray, "n d"],
    data: DomainDataset,
    indices: Sequence[int],
    *,
    seed: int = 0,
) -> Embedding:
    """Return the same for features that are known already."""
    y = labels_of(data, indices)
    return Embedding(
        plane(features, seed=seed),
        class_names(data, indices),
        domain_names(data, indices),
        tuple(image_name(data, place) for place in indices),
        silhouette(features, y),
        scatter_ratio(features, y),
    )


def features_of(
    run: LoadedRun, data: DomainDataset, indices: Sequence[int]
) -> Float[np.ndarray, "n d"]:
    """Return what enters the last linear layer for each image, in double precision."""
    found = []
    for places in torch.tensor(indices, dtype=torch.int64).split(_BATCH):
        images = run.transform.evaluation(data, places).to(run.device)
        found.append(pooled_features(run.model, images).cpu().double())
    return torch.cat(found).numpy()


def labels_of(data: DomainDataset, indices: Sequence[int]) -> Int[np.ndarray, " n"]:
    """Return the class of each image as a number."""
    return data.y[list(indices)].numpy()


def plane(features: Float[np.ndarray, "n d"], *, seed: int = 0) -> Float[np.ndarray, "n 2"]:
    """Return a point for each row, by t-SNE from a start by PCA; the same for the same seed."""
    if len(features) < _FEWEST or features.shape[1] < 2:
        raise DataError(
            f"{len(features)} images of {features.shape[1]} features cannot be laid out in a plane;"
            f" t-SNE takes {_FEWEST} images and 2 features or more"
        )
    if np.ptp(features, axis=0).max() == 0:
        raise DataError("the features of all images are the same; train the network again")
    perplexity = min(_PERPLEXITY, (len(features) - 1) / 3)
    layout = TSNE(2, perplexity=perplexity, init="pca", learning_rate="auto", random_state=seed)
    return np.asarray(layout.fit_transform(features.astype(np.float32)))
