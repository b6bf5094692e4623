"""MMLD: features that hide the style of an image, styles found by clustering. No domain labels."""

import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn

from cicf.core import ConfigError
from cicf.core.draw import Samples
from cicf.core.modes import evaluating
from cicf.data.clusters import cluster_by_class
from cicf.data.loader import Evaluated, batches
from cicf.data.sampling import Sampling
from cicf.maths.reversal import reversed_gradient
from cicf.maths.style import channel_statistics
from cicf.method import About, Given, LossMethod, MethodConfig
from cicf.models.split import SplitModel
from cicf.models.taps import Change, changed, chosen_layers, features_and_logits, head_of

EARLY = (("layer1", "layer2"), ("block1", "block2"), ("features.4", "features.7"))
"""Where styles are read: in a ResNet, in the Digits CNN, after the ReLUs of conv2 and conv3 of
AlexNet."""
_READ = 128
_SMALLEST_VARIANCE = 1e-5


class MmldConfig(MethodConfig):
    """Trains features from which a discriminator cannot tell clusters of styles apart."""

    about: ClassVar[About] = About(
        reference="Matsuura and Harada, AAAI 2020", extra_networks="discriminator", cost=1.1
    )
    name: Literal["mmld"] = "mmld"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """There is no virtual step, so θ is the model."""
    clusters: int = Field(default=3, ge=2)
    """K, the clusters of styles that stand for domains; 3 [code]."""
    every: PositiveInt = 1
    """Epochs from one clustering to the next; 1 [code]."""
    layers: tuple[str, ...] = ()
    """Modules whose maps tell the style; by default layer1 and layer2 of a ResNet, the ReLUs after
    conv2 and conv3 of AlexNet [code], block1 and block2 of the Digits CNN, or the first two stages
    of other networks (ours)."""
    components: PositiveInt = 256
    """Principal components of the styles that are clustered, all if they are fewer; 256 [code]."""
    width: PositiveInt = 1024
    """Units in each of the two hidden layers of the discriminator; 1024 [code]."""
    dropout: float = Field(default=0.5, ge=0, lt=1)
    """The share of these units that is dropped in a step; 0.5 [code]."""
    reversal: NonNegativeFloat = 1.0
    """What λ is multiplied by where the discriminator's gradient is reversed; 1 [code]."""
    entropy: NonNegativeFloat = 1.0
    """What λ is multiplied by as the weight of the entropy; 1 [code]."""

    def build(self, given: Given) -> "Mmld":
        """Return MMLD on this model."""
        return Mmld(self, given)


class Mmld(LossMethod):
    """Keeps the cluster of each training image, and the discriminator that is to be deceived."""

    sampling = Sampling()
    clusters: Tensor
    weights: Tensor
    progress: Tensor
    """λ of the epoch, 2 / (1 + e^{−10 p}) − 1 with p the part of the epochs that are over."""

    def __init__(self, config: MmldConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._epochs = config, given.epochs
        self._layers = style_layers(given.model, config.layers)
        self.discriminator = discriminator(
            head_of(given.model).in_features, config.clusters, config.width, config.dropout
        )
        self.register_buffer("clusters", torch.zeros(given.num_images, dtype=torch.int64))
        self.register_buffer("weights", torch.ones(config.clusters))
        self.register_buffer("progress", torch.zeros(()))

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, " m"]:
        """Return CE + w_k CE_domain(reversed features) + λ H of each sample."""
        features, logits = features_and_logits(model, batch.x)
        cluster = self.clusters[batch.place]
        hidden = reversed_gradient(features, self._config.reversal * self.progress)
        told = F.cross_entropy(self.discriminator(hidden), cluster, reduction="none")
        loss = F.cross_entropy(logits, batch.y, reduction="none") + self.weights[cluster] * told
        return loss + self._config.entropy * self.progress * entropy(logits)

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Cluster the styles anew, if it is time to, and set λ for the epoch."""
        self.progress.fill_(2 / (1 + math.exp(-10 * epoch / self._epochs)) - 1)
        if epoch % self._config.every:
            return
        count = self._config.clusters
        seed = int(torch.randint(2**31, ()))
        styles = styles_of(self.model, images, self._layers)
        found = clustered(styles, count, self._config.components, seed)
        clusters = renumbered(found, self.clusters.cpu(), count)
        self.clusters.copy_(clusters)
        self.weights.copy_(cluster_weights(clusters, count))


def style_layers(model: SplitModel, named: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules whose maps tell the style: as named, as published, or the first stages."""
    modules = dict(model.network.named_modules())
    usual = next((pair for pair in EARLY if all(name in modules for name in pair)), ())
    return chosen_layers(model, named or usual, option="method.layers", stages=(0, 1))


def discriminator(features: int, clusters: int, width: int, dropout: float) -> nn.Module:
    """Return the network that tells clusters by features: two hidden layers with dropout."""
    return nn.Sequential(
        nn.Linear(features, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, width),
        nn.ReLU(),
        nn.Dropout(dropout),
        nn.Linear(width, clusters),
    )


def entropy(logits: Float[Tensor, "n classes"]) -> Float[Tensor, " n"]:
    """Return H, the entropy of the classes that a network finds probable, of each sample."""
    logs = logits.log_softmax(1)
    return -(logs.exp() * logs).sum(1)


def channel_style(maps: Float[Tensor, "n c h w"]) -> Float[Tensor, "n two_c"]:
    """Return mean and deviation of every channel over places, of each sample.

    A map of one place has no deviation.
    """
    if maps[0, 0].numel() == 1:
        return torch.cat([maps.flatten(1), torch.zeros_like(maps).flatten(1)], dim=1)
    return torch.cat(channel_statistics(maps, eps=_SMALLEST_VARIANCE), dim=1)


def styles_of(
    model: SplitModel, images: Evaluated, layers: tuple[str, ...]
) -> Float[Tensor, "n d"]:
    """Return the style of every image, read in evaluation mode; of the images nothing is kept."""
    seen: dict[str, list[Tensor]] = {name: [] for name in layers}

    def reading(name: str) -> Change:
        # At once, since the next layer may work in place.
        def read(output: Tensor) -> Tensor:
            if not isinstance(output, Tensor) or output.ndim != 4:
                raise ConfigError(
                    f"method.layers={name!r} puts out no map [images, channels, height, width], so "
                    "it has no style; name a convolutional layer"
                )
            seen[name].append(channel_style(output).cpu())
            return output

        return read

    like = next(model.parameters())
    with evaluating(model), torch.no_grad(), changed(model, {name: reading(name) for name in seen}):
        for batch in batches(images, size=_READ):
            model(batch.x.to(like))
    return torch.cat([torch.cat(parts) for parts in seen.values()], dim=1)


def clustered(
    styles: Float[Tensor, "n d"], count: int, components: int, seed: int
) -> Int[Tensor, " n"]:
    """Return the cluster of each image: k-means of the first principal components."""
    from sklearn.decomposition import PCA
    from threadpoolctl import threadpool_limits

    # Threads add up in another order, which may decide where an image between two clusters goes.
    with threadpool_limits(1):
        reduction = PCA(min(components, *styles.shape), random_state=seed)
        reduced = reduction.fit_transform(styles.numpy())
    one_class = torch.zeros(len(styles), dtype=torch.int64)
    found = cluster_by_class(
        torch.from_numpy(reduced), one_class, clusters_per_class=count, seed=seed
    )
    return found.cluster


def renumbered(
    found: Int[Tensor, " n"], before: Int[Tensor, " n"], count: int
) -> Int[Tensor, " n"]:
    """Return the clusters by the numbers with which most images keep theirs (Hungarian method)."""
    from scipy.optimize import linear_sum_assignment

    shared = (found * count + before).bincount(minlength=count * count).view(count, count)
    _, numbers = linear_sum_assignment(shared.numpy(), maximize=True)
    return torch.from_numpy(numbers)[found]


def cluster_weights(clusters: Int[Tensor, " n"], count: int) -> Float[Tensor, " k"]:
    """Return weights ∝ 1 / N_k whose mean over images is 1; 0 for a cluster without images."""
    sizes = clusters.bincount(minlength=count)
    weights = len(clusters) / (sizes * (sizes > 0).sum()).to(torch.get_default_dtype())
    return weights.where(sizes > 0, 0)
