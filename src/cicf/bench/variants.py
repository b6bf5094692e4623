"""The variants of a method that an ablation runs: one for each value of an option."""

from collections.abc import Iterable, Sequence

from cicf.bench.grid import Job, Variant
from cicf.config import RunConfig
from cicf.core import ConfigError, did_you_mean
from cicf.data.domains import DomainDataset
from cicf.experiment.build import image_size, make_model, make_split
from cicf.experiment.presets import Values
from cicf.models import ARCHITECTURES
from cicf.results.axes import Axis, Value


def axis_values(axis: Axis, given: Sequence[str] | None, model: str) -> tuple[Value, ...]:
    """Return the values to try: those that were given, or by default; two at least."""
    if given is None:
        return axis.values or _cuts(model)
    found = tuple(_value(word, axis) for word in given)
    for word, value in zip(given, found, strict=True):
        if axis.choices and value not in axis.choices:
            hint = did_you_mean(word, map(str, axis.choices))
            raise ConfigError(f"--values {word!r} is no {axis.option}; {hint}")
    if len(set(found)) < 2:
        raise ConfigError(
            f"--values {','.join(given)!r} is one value of {axis.option}; name two or more, "
            "separated by commas"
        )
    return tuple(dict.fromkeys(found))


def _value(word: str, axis: Axis) -> Value:
    """Return a value as it was written: a number where it is one."""
    if not axis.is_number:
        return int(word) if word.isdecimal() else word
    try:
        return float(word)
    except ValueError as error:
        raise ConfigError(
            f"--values {word!r} is no number, but {axis.option} is one; write numbers, separated "
            "by commas"
        ) from error


def make_variants(
    axis: Axis, values: Iterable[Value], *, config: RunConfig, num_classes: int
) -> tuple[Variant, ...]:
    """Return a variant for each value; what the network cannot be cut at is refused here.

    What is so anyway is not said again, so that runs of a table count as runs of the ablation.
    """
    if axis.over == "cut":
        values = [_checked_cut(str(value), config, num_classes) for value in values]
    return tuple(
        Variant(f"{axis.option}={value}", _options(axis, value, config, num_classes))
        for value in values
    )


def check_batch_sizes(jobs: Iterable[Job], data: DomainDataset) -> None:
    """Refuse an inner batch that is larger than the training set of one of the runs."""
    seen: dict[str | None, int] = {}
    for job in jobs:
        domain = job.config.data.target or job.config.data.source
        if domain not in seen:
            seen[domain] = len(make_split(job.config, data).train)
        size = job.config.inner.size or job.config.inner.most
        if job.variant and size > seen[domain]:
            raise ConfigError(
                f"M={size} is larger than the training set of {domain!r}, which has "
                f"{seen[domain]} images; name smaller --values"
            )


def _cuts(model: str) -> tuple[Value, ...]:
    if model not in ARCHITECTURES:
        raise ConfigError(
            f"the stages of model={model!r} are not known, so name some of its modules with "
            "--values, separated by commas; 'input' cuts before all of them"
        )
    return tuple(ARCHITECTURES[model].cuts)


def _checked_cut(cut: str, config: RunConfig, num_classes: int) -> str:
    named = config.model.model_copy(update={"cut": cut})
    return make_model(named, num_classes, image_size(config)).cut


def _options(axis: Axis, value: Value, config: RunConfig, num_classes: int) -> Values:
    if axis.over == "cut" and config.model.cut is None:
        default = make_model(config.model, num_classes, image_size(config)).cut
        if value == default:
            return {}
    if axis.over == "batch-size" and config.inner.size is None and config.inner.most == value:
        return {}
    section, _, name = axis.option.partition(".")
    return {section: {name: value}}
