"""Clustering-then-sampling on some data: the gap E, Eq. 15 and 19, and cosines of gradients."""

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from cicf.config import RunConfig
from cicf.core import ConfigError, DataError
from cicf.data.clusters import ClustersPerClass, cluster_by_class
from cicf.data.domains import DomainDataset
from cicf.data.features import dataset_features
from cicf.data.fingerprint import fingerprint as fingerprint_of
from cicf.data.loader import Evaluated
from cicf.data.samplers import StratifiedSampler
from cicf.data.strata import Strata, strata_of
from cicf.data.transforms import Transform
from cicf.experiment import LoadedRun
from cicf.experiment.build import make_plan
from cicf.experiment.data import kept, load_data, with_cache
from cicf.maths.gram import coordinates
from cicf.maths.stratified import global_scope_gradient
from cicf.models import SplitModel
from cicf.report.sampling_agreement import Cosines, measured_agreement
from cicf.report.sampling_errors import Cell, measured_errors
from cicf.report.sampling_gap import Gap, measured_gaps
from cicf.report.sampling_gradients import Estimated, Working, gradient_products, theta_of
from cicf.training import Caching

SIZES = (16, 32, 64, 128, 256)
"""M, where none is given: those of them that are at most half of the images."""
Event = Caching | Working | Estimated


@dataclass(frozen=True, slots=True)
class Question:
    """Says what is to be measured."""

    sizes: tuple[int, ...] | None = None
    """M; None for those of SIZES that the images allow."""
    clusters: tuple[int, ...] = (1, 2, 3, 5)
    """K, clusters of each class."""
    draws: int = 200
    """Batches of each kind."""
    images: int = 512
    """How many images gradients are taken of, at most."""
    resamples: int = 500
    """Of the bootstrap."""
    seed: int = 0
    """What the draws follow from, and which images are taken."""


FAST = Question(clusters=(1, 3), draws=40, images=64, resamples=100)


class Answer(NamedTuple):
    """Holds what was measured."""

    sources: dict[str, int]
    """The training images of each source."""
    images: int
    """Those that gradients were taken of."""
    parameters: int
    """Of f, after Z."""
    gradient_norm: float
    """‖g†‖ of Eq. 12."""
    k: ClustersPerClass
    """K where M varies."""
    m: int
    """M where K varies; for the gap, the largest of all."""
    gaps: tuple[Gap, ...]
    cells: tuple[Cell, ...]
    cosines: Cosines

    @property
    def head(self) -> Cell:
        """Return the errors that sentences are about, at K and M."""
        return next(each for each in self.cells if (each.k, each.m) == (self.k, self.m))


class Images(NamedTuple):
    """Holds images with the features that they are clustered by."""

    data: DomainDataset
    features: Float[Tensor, "n d"]

    def clusters(self, k: ClustersPerClass, seed: int) -> Strata:
        """Return K clusters of each class."""
        return cluster_by_class(self.features, self.data.y, clusters_per_class=k, seed=seed)

    def sample(self, count: int, seed: int) -> "Images":
        """Return as many of the images, in which classes and domains have the share they have."""
        if count >= len(self.data):
            return self
        strata = strata_of(self.data.domain, self.data.y)
        places = StratifiedSampler(strata, size=count, seed=seed).batch(0).sort().values
        return Images(self.data.subset(places), self.features[places])


class _Prepared(NamedTuple):
    images: Images
    model: SplitModel
    transform: Transform
    device: torch.device
    sources: dict[str, int]


def answered(
    config: RunConfig, question: Question, *, run: LoadedRun | None = None
) -> Iterator[Event | Answer]:
    """Measure clustering-then-sampling on the training images of a run; the answer comes last.

    The network is the one that such a run starts from, or that of `run`. The target is not read.
    """
    whole, model, transform, device, sources = yield from _prepared(config, run)
    part = whole.sample(question.images, question.seed)
    k, sizes = config.clusters.per_class, sizes_for(question.sizes, len(part.data))
    all_sizes = sizes_for(question.sizes, len(whole.data))
    every_k = tuple(dict.fromkeys([k, *question.clusters]))
    of_all = yield from _clustered(whole, every_k, config.seed)
    gaps = yield from _gaps(of_all, pairs(k, question.clusters, all_sizes), question)
    evaluated = Evaluated(part.data, transform)
    products = yield from gradient_products(model, evaluated, device=device)
    g = coordinates(products)
    of_part = of_all if part is whole else (yield from _clustered(part, every_k, config.seed))
    cells = yield from _cells(g, of_part, pairs(k, question.clusters, sizes), question)
    yield Answer(
        sources=sources,
        images=len(part.data),
        parameters=sum(value.numel() for value in theta_of(model).values()),
        gradient_norm=float(global_scope_gradient(g).norm()),
        k=k,
        m=sizes[-1],
        gaps=gaps,
        cells=cells,
        cosines=measured_agreement(
            products, of_part[k], resamples=question.resamples, seed=question.seed
        ),
    )


def sizes_for(asked: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """Return M in ascending order, as asked for, or as suits this number of images."""
    if asked is None:
        return tuple(m for m in SIZES if m <= count // 2) or (max(1, count // 2),)
    for m in asked:
        if not 1 <= m <= count:
            raise ConfigError(
                f"--m {m} must lie between 1 and {count}, the number of images that gradients are "
                "taken of; draw smaller batches, or take more images by --images"
            )
    return tuple(sorted(set(asked)))


def pairs(
    k: ClustersPerClass, clusters: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[tuple[ClustersPerClass, int], ...]:
    """Return every M at K, and every K at the largest M."""
    return tuple(dict.fromkeys([*((k, m) for m in sizes), *((c, sizes[-1]) for c in clusters)]))


def _prepared(config: RunConfig, run: LoadedRun | None) -> Generator[Event, None, _Prepared]:
    """Return the training images with their features, and the network."""
    root = config.machine.cache_root()
    loaded = load_data(config.data, checks_images=False, cache_root=root)
    fingerprint = fingerprint_of(loaded.data)
    if run is not None and run.setup.fingerprint != fingerprint:
        raise DataError(
            f"the run was trained on other images (data {run.setup.fingerprint}) than those of "
            f"{config.data.name} (data {fingerprint}); name the ones that it was trained on"
        )
    loaded = loaded._replace(data=with_cache(loaded.data, root, fingerprint))
    plan = make_plan(config, loaded, fingerprint, is_resumed=run is not None)
    device = config.machine.torch_device()
    model = (plan.model if run is None else run.model).to(device)
    train, transform = plan.split.train, plan.transform
    yield from kept([(train, (transform.evaluated_view,))])
    yield Working("features", 0, 1)
    by_network = config.clusters.source == "network"
    features, _ = dataset_features(
        Evaluated(train, transform),
        model=model.network if by_network else None,
        layer=config.clusters.layer if by_network else None,
        resolution=config.clusters.resolution,
    )
    return _Prepared(Images(train, features), model, transform, device, plan.setup.sources)


def _clustered(
    images: Images, every_k: tuple[ClustersPerClass, ...], seed: int
) -> Generator[Working, None, dict[ClustersPerClass, Strata]]:
    found: dict[ClustersPerClass, Strata] = {}
    for k in every_k:
        yield Working(f"clusters of {len(images.data)} images", len(found), len(every_k))
        found[k] = images.clusters(k, seed)
    return found


def _gaps(
    strata: dict[ClustersPerClass, Strata],
    todo: tuple[tuple[ClustersPerClass, int], ...],
    question: Question,
) -> Generator[Working, None, tuple[Gap, ...]]:
    found: list[Gap] = []
    for done, (k, m) in enumerate(todo):
        yield Working("gap E", done, len(todo))
        found += measured_gaps(strata[k], k=k, m=m, draws=question.draws, seed=question.seed)
    return tuple(found)


def _cells(
    g: Float[Tensor, "n p"],
    strata: dict[ClustersPerClass, Strata],
    todo: tuple[tuple[ClustersPerClass, int], ...],
    question: Question,
) -> Generator[Working, None, tuple[Cell, ...]]:
    found: list[Cell] = []
    for done, (k, m) in enumerate(todo):
        yield Working("standard errors", done, len(todo))
        draws, seed = question.draws, question.seed
        found.append(measured_errors(g, strata[k], k=k, m=m, draws=draws, seed=seed))
    return tuple(found)
