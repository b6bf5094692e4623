"""From a config to the objects of a run."""

import hashlib
import os
from pathlib import Path

import torch

import cicf
from cicf.config import DataConfig, ModelConfig, RunConfig
from cicf.core import ConfigError, DataError, did_you_mean
from cicf.core.streams import stream_seed
from cicf.data.demo import demo_digits
from cicf.data.domains import DomainDataset
from cicf.data.folder import load_folder
from cicf.data.images import ImageFiles
from cicf.data.protocol import Split, hold_out, leave_one_domain_out
from cicf.data.sampling import Sizes, batch_sizes, make_samplers
from cicf.data.transforms import HALF, IMAGENET, Transform
from cicf.experiment.recipes import DEMO
from cicf.method import Method
from cicf.models import ARCHITECTURES, SplitModel, build_model, load_weights
from cicf.results.record import Setup
from cicf.training import Plan

_OTHER_SIZE = 224


def load_data(config: DataConfig, *, is_for_training: bool = True) -> DomainDataset:
    """Return the images that a config names; to train on, classes need two images each."""
    if config.name == DEMO and config.root is None:
        return demo_digits()
    path = (config.root or Path()) / config.name
    if not path.is_dir():
        raise DataError(
            f"{path} is no folder, and {config.name!r} is no data set that comes with the package; "
            f"name a folder with class/image.jpg, or {did_you_mean(config.name, [DEMO])}"
        )
    return load_folder(
        path, skips_unreadable=config.skips_unreadable, is_for_training=is_for_training
    )


def make_plan(
    config: RunConfig, data: DomainDataset, fingerprint: str, *, is_resumed: bool = False
) -> Plan:
    """Return everything that a training needs; what can be known to be wrong is found out here.

    A run that goes on takes its weights from its checkpoint, and does not need the first ones.
    """
    split = make_split(config, data)
    _check_split(split, config.data.name)
    # Weights and dropout draw from the global state, which follows from the seed alone.
    torch.manual_seed(stream_seed(config.seed, "torch"))
    model = make_model(config.model, len(data.classes), image_size(config))
    source = "none" if is_resumed else config.model.weights
    loaded = load_weights(model.network, source, name=config.model.name)
    method = config.method.build(model)
    sizes = make_sizes(config, method, split.train)
    clustering = config.clusters.clustering(config.seed) if method.sampling.needs_clusters else None
    notes = sizes.notes
    if loaded.loaded and loaded.new:
        notes += (f"{', '.join(loaded.new)} start new, the rest from {config.model.weights}",)
    setup = _setup(config, data, split, method, sizes, model, fingerprint, notes)
    return Plan(
        model=model,
        method=method,
        deploy=config.method.deploy,
        split=split,
        transform=make_transform(config),
        clustering=clustering,
        sizes=sizes,
        optim=config.optim,
        epochs=config.epochs,
        log_every=config.log_every,
        seed=config.seed,
        setup=setup,
    )


def make_sizes(config: RunConfig, method: Method, train: DomainDataset) -> Sizes:
    """Return the sizes of the batches, such that T tasks share them out evenly."""
    sizes = batch_sizes(
        method.sampling,
        train,
        inner=config.inner.size,
        outer=config.outer.size,
        most=(config.inner.most, config.outer.most),
    )
    if not method.sampling.needs_domains:
        return sizes
    # Made for what it refuses, too.
    drawn = make_samplers(method.sampling, train, sizes, strata=None, seed=config.seed)
    assert drawn.inner is not None
    even = sizes._replace(inner=drawn.inner.size, outer=drawn.outer.size)
    if even == sizes:
        return sizes
    note = (
        f"inner.size and outer.size are {even.inner} and {even.outer} instead of {sizes.inner} and "
        f"{sizes.outer}, because {drawn.tasks} tasks share them evenly"
    )
    return even._replace(notes=(*sizes.notes, note))


def make_split(config: RunConfig, data: DomainDataset) -> Split:
    """Return the images to train on, to choose by, and to test on."""
    target, share = config.data.target, config.data.validation
    if target is None:
        return hold_out(data, validation=share, seed=config.seed)
    if len(data.domains) < 2:
        raise ConfigError(
            f"data.target={target!r} cannot be held out, because {config.data.name} has one domain "
            "only; arrange it as domain/class/image.jpg, or leave the target out"
        )
    if target not in data.domains:
        raise ConfigError(
            f"data.target={target!r} is no domain of {config.data.name}; "
            f"{did_you_mean(target, data.domains)}"
        )
    return leave_one_domain_out(data, target, validation=share, seed=config.seed)


def make_model(config: ModelConfig, num_classes: int, size: int) -> SplitModel:
    """Return the network with new weights, cut at Z."""
    return build_model(config.name, num_classes=num_classes, cut=config.cut, image_size=size)


def image_size(config: RunConfig) -> int:
    """Return the side of the images, as asked for or as the network was made for."""
    known = ARCHITECTURES.get(config.model.name)
    return config.data.image_size or (known.image_size if known else _OTHER_SIZE)


def make_transform(config: RunConfig) -> Transform:
    """Return what turns an image into what the network takes."""
    mean, std = IMAGENET if config.data.normalise == "imagenet" else HALF
    data = config.data
    return Transform(image_size(config), mean, std, data.augment, data.flips, data.policy)


def fingerprint_of(data: DomainDataset) -> str:
    """Return a hash of names, labels and contents of all images."""
    found = hashlib.sha256()
    found.update(repr((data.classes, data.domains)).encode())
    for labels in (data.y, data.domain):
        found.update(labels.numpy().tobytes())
    if isinstance(data.images, ImageFiles):
        for path in data.images.paths:
            found.update(os.fsencode(path.name) + b"\0")
            found.update(hashlib.sha256(path.read_bytes()).digest())
    else:
        found.update(data.images.numpy().tobytes())
    return found.hexdigest()[:16]


def _check_split(split: Split, name: str) -> None:
    if len(split.train.y.unique()) < 2:
        raise DataError(
            f"the training images of {name} are all of one class; a classifier needs "
            "at least two, so hold another domain out, or add images"
        )
    if len(split.validation) == 0:
        raise DataError(
            f"no image of {name} is left to validate with, because every class of "
            "every source domain has one image; give one of them at least two"
        )


def _setup(
    config: RunConfig,
    data: DomainDataset,
    split: Split,
    method: Method,
    sizes: Sizes,
    model: SplitModel,
    fingerprint: str,
    notes: tuple[str, ...],
) -> Setup:
    transform = make_transform(config)
    return Setup(
        classes=data.classes,
        sources=_counts(split.train),
        validation=_counts(split.validation),
        target=config.data.target,
        fingerprint=fingerprint,
        inner_size=None if method.sampling.inner is None else sizes.inner,
        outer_size=sizes.outer,
        steps_per_epoch=len(split.train) // sizes.outer,
        cut=model.cut,
        image_size=transform.size,
        mean=transform.mean,
        std=transform.std,
        notes=notes,
        versions={"cicf": cicf.__version__, "torch": str(torch.__version__)},
    )


def _counts(data: DomainDataset) -> dict[str, int]:
    counts = data.domain.bincount(minlength=len(data.domains)).tolist()
    return {name: n for name, n in zip(data.domains, counts, strict=True) if n}
