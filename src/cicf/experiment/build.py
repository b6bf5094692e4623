"""From a config to the objects of a run."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal, TypedDict

import torch

import cicf
from cicf.config import ModelConfig, RunConfig
from cicf.core import ConfigError, DataError, did_you_mean
from cicf.core.streams import stream_seed
from cicf.data.domains import DomainDataset
from cicf.data.hashes import sha256_of
from cicf.data.protocol import Split, hold_out, leave_one_domain_out, single_source
from cicf.data.sampling import Sampling, Sizes, batch_sizes, check_named, make_samplers
from cicf.data.strata import strata_of
from cicf.data.transforms import HALF, IMAGENET, Transform
from cicf.experiment.data import Loaded
from cicf.method import Given, Method, Phase
from cicf.models import ARCHITECTURES, SplitModel, build_model, load_weights
from cicf.results.record import Protocol, Setup
from cicf.training import Plan

_OTHER_SIZE = 224


class _SplitOptions(TypedDict):
    validation: float
    uses_given: bool
    seed: int


def make_plan(
    config: RunConfig, loaded: Loaded, fingerprint: str, *, is_resumed: bool = False
) -> Plan:
    """Return everything that a training needs; what can be known to be wrong is found out here.

    A run that goes on takes its weights from its checkpoint, and does not need the first ones.
    """
    data = loaded.data
    split = make_split(config, data)
    _check_split(split, config.data.name)
    # Weights and dropout draw from the global state, which follows from the seed alone.
    torch.manual_seed(stream_seed(config.seed, "torch"))
    model = make_model(config.model, len(data.classes), image_size(config))
    source = "none" if is_resumed else config.model.weights
    weights = load_weights(model.network, source, name=config.model.name)
    method, sizes = _make_method(config, split.train, model)
    clustering = config.clusters.clustering(config.seed) if method.sampling.needs_clusters else None
    notes = loaded.notes + sizes.notes
    if weights.loaded and weights.new:
        notes += (f"{', '.join(weights.new)} start new, the rest from {config.model.weights}",)
    if not is_resumed and Path(config.model.weights).is_file():
        notes += (f"weights of {config.model.weights}: {sha256_of(Path(config.model.weights))}",)
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
        phases=method.phases or (Phase("training", config.epochs),),
        average=config.average,
        evaluates_every=config.evaluates_every,
        log_every=config.log_every,
        keeps_epochs=config.keeps_epochs,
        seed=config.seed,
        setup=setup,
    )


def _make_method(
    config: RunConfig, train: DomainDataset, model: SplitModel
) -> tuple[Method, Sizes]:
    """Return the method, and the sizes of its batches."""
    random = torch.get_rng_state()
    given = _given(config, train, model)
    method = config.method.build(given)
    _check_domains(method, config, train)
    sizes = make_sizes(config, method, train)
    steps = len(train) // sizes.outer
    if steps != given.steps_per_epoch:
        # What it draws decides how many steps an epoch has, which it is then built for.
        torch.set_rng_state(random)
        method = config.method.build(replace(given, steps_per_epoch=steps))
    return method, sizes


def _given(config: RunConfig, train: DomainDataset, model: SplitModel) -> Given:
    sizes = batch_sizes(
        Sampling(),
        train,
        inner=None,
        outer=config.outer.size,
        most=(config.inner.most, config.outer.most),
    )
    transform = make_transform(config)
    return Given(
        model,
        num_classes=len(train.classes),
        sources=tuple(train.domain.unique().tolist()),
        num_images=len(train),
        image_size=transform.size,
        epochs=config.epochs,
        steps_per_epoch=max(1, len(train) // sizes.outer),
        lr=config.optim.lr,
        mean=transform.mean,
        std=transform.std,
    )


def _check_domains(method: Method, config: RunConfig, train: DomainDataset) -> None:
    """Refuse images without domains, or of too few, to a method that needs them."""
    if not method.needs_domains:
        return
    check_named(train)
    count = len(train.domain.unique())
    if count < method.least_domains:
        raise ConfigError(
            f"method {config.method.name!r} needs images of at least {method.least_domains} source "
            f"domains, but there are {count}; add a domain, or use a method without domain labels "
            "(cicf)"
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
    # Made for what it refuses, too; for sizes, classes are clusters enough.
    strata = strata_of(train.y, train.y)
    drawn = make_samplers(method.sampling, train, sizes, strata=strata, seed=config.seed)
    inner = sizes.inner if drawn.inner is None else drawn.inner.size
    even = Sizes(inner, drawn.outer.size, sizes.notes)
    return even._replace(notes=(*sizes.notes, *_evened(method.sampling, sizes, even, drawn.tasks)))


def _evened(sampling: Sampling, asked: Sizes, even: Sizes, tasks: int) -> Iterator[str]:
    """Yield what to know of sizes that are not those asked for."""
    if sampling.has_tasks:
        if even != asked:
            yield (
                f"inner.size and outer.size are {even.inner} and {even.outer} instead of "
                f"{asked.inner} and {asked.outer}, because {tasks} tasks share them evenly"
            )
        return
    if even.outer != asked.outer:
        why = "domains share it evenly"
        yield f"outer.size is {even.outer} instead of {asked.outer}, because {why}"
    if even.inner != asked.inner:
        why = "it holds whole groups of matched images"
        yield f"inner.size is {even.inner} instead of {asked.inner}, because {why}"


def make_split(config: RunConfig, data: DomainDataset) -> Split:
    """Return the images to train on, to choose by, and to test on."""
    chosen = config.data
    options: _SplitOptions = {
        "validation": chosen.validation,
        "uses_given": chosen.uses_given_split,
        "seed": config.seed,
    }
    if chosen.target is not None and chosen.source is not None:
        raise ConfigError(
            f"data.target={chosen.target!r} and data.source={chosen.source!r} exclude each other; "
            "name the domain to hold out, or the only one to train on"
        )
    if chosen.target is not None:
        _check_domain("target", chosen.target, data, chosen.name)
        return leave_one_domain_out(data, chosen.target, **options)
    if chosen.source is not None:
        _check_domain("source", chosen.source, data, chosen.name)
        return single_source(data, chosen.source, **options)
    return hold_out(data, **options)


def make_protocol(config: RunConfig, split: Split) -> Protocol:
    """Return the name of what `make_split` did."""
    name: Literal["leave-one-domain-out", "single-source", "hold-out"] = "hold-out"
    if config.data.target is not None:
        name = "leave-one-domain-out"
    if config.data.source is not None:
        name = "single-source"
    tested = () if split.test is None else tuple(_counts(split.test))
    return Protocol(name=name, split=split.rule, part=split.scored, tested=tested)


def _check_domain(option: str, name: str, data: DomainDataset, of: str) -> None:
    if len(data.domains) < 2:
        does = "held out" if option == "target" else "trained on alone"
        raise ConfigError(
            f"data.{option}={name!r} cannot be {does}, because {of} has one domain "
            f"only; arrange it as domain/class/image.jpg, or leave the {option} out"
        )
    if name not in data.domains:
        raise ConfigError(
            f"data.{option}={name!r} is no domain of {of}; {did_you_mean(name, data.domains)}"
        )


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


def _check_split(split: Split, name: str) -> None:
    if len(split.train) == 0:
        raise DataError(
            f"no image of {name} is left to train on: its split gives all of the sources to "
            "validation and test; correct it, or set data.uses_given_split=false"
        )
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
        protocol=make_protocol(config, split),
        fingerprint=fingerprint,
        inner_size=None if method.sampling.inner is None else sizes.inner,
        outer_size=sizes.outer,
        steps_per_epoch=len(split.train) // sizes.outer,
        cut=model.cut,
        image_size=transform.size,
        mean=transform.mean,
        std=transform.std,
        threads=torch.get_num_threads(),
        notes=notes,
        versions={"cicf": cicf.__version__, "torch": str(torch.__version__)},
    )


def _counts(data: DomainDataset) -> dict[str, int]:
    counts = data.domain.bincount(minlength=len(data.domains)).tolist()
    return {name: n for name, n in zip(data.domains, counts, strict=True) if n}
