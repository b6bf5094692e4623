"""The audit on images of a user's own: what stays under interventions that spare the object."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from cicf.core import DataError
from cicf.core.modes import evaluating
from cicf.experiment import LoadedRun
from cicf.report.audit import Flip, change, flips, probability, share
from cicf.report.audit_subjects import Subject, Subjects
from cicf.report.estimates import Estimate
from cicf.report.interventions import Intervention, interventions


class Variant(NamedTuple):
    """Is an intervention at one of its strengths; `rank` counts these from 0, the weakest."""

    intervention: Intervention
    rank: int

    @property
    def level(self) -> float:
        """Return the strength in the intervention's own unit."""
        return self.intervention.levels[self.rank]

    @property
    def label(self) -> str:
        """Return the variant in words."""
        # Never broken between the two, where it is written small.
        return f"{self.intervention.name}\N{NO-BREAK SPACE}{self.level:g}"


class Effect(NamedTuple):
    """Holds what one variant does to the predictions."""

    variant: Variant
    is_kept: Bool[Tensor, " n"]
    """Whether the prediction stays, for each image."""
    stays: Estimate
    accuracy: Estimate | None
    """Before; None where labels are not known."""
    new_accuracy: Estimate | None
    gain: Estimate | None
    """Of the accuracy, image by image."""
    change: Estimate
    """Of the probability of the class that was predicted before."""


class Answers(NamedTuple):
    """Holds the probabilities of the classes for each image as it is and in each variant."""

    plain: Float[Tensor, "n c"]
    varied: Float[Tensor, "n v c"]
    y: Int[Tensor, " n"] | None


class AuditedImages(NamedTuple):
    """Holds what the audit of one run found."""

    name: str
    effects: tuple[Effect, ...]
    flips: tuple[Flip, ...]
    classes: tuple[str, ...]


def variants(subjects: Subjects, *, ranks: Sequence[int] = (0, 1, 2)) -> tuple[Variant, ...]:
    """Return what can be done to these images: what needs a mask only where there are masks."""
    return tuple(
        Variant(each, rank)
        for each in interventions()
        for rank in ranks
        if subjects.masks is not None or not each.needs_mask
    )


def check_labels(run: LoadedRun, subjects: Subjects) -> None:
    """Refuse images of classes that a network does not know."""
    unknown = sorted(set(subjects.labels or ()) - set(run.setup.classes))
    if unknown:
        raise DataError(
            f"class {unknown[0]!r} is none that the network knows; its classes are "
            f"{', '.join(run.setup.classes)}; name images without labels with --images"
        )


def changed(subject: Subject, variant: Variant) -> UInt8[Tensor, "3 h w"]:
    """Return the image of a subject after the intervention."""
    return variant.intervention.apply(subject.image, variant.level, subject.mask)


def answers(
    run: LoadedRun, subjects: Subjects, chosen: Sequence[Variant]
) -> Iterator[Answers | int]:
    """Ask a network about every image and its variants.

    Yields how many images are done, and the answers at the end.
    """
    y = _places(run, subjects)
    rows = []
    for place in range(len(subjects)):
        subject = subjects[place]
        images = [subject.image, *(changed(subject, variant) for variant in chosen)]
        with evaluating(run.model), torch.inference_mode():
            rows.append(run.model(run.prepared(images)).softmax(dim=1).cpu())
        yield place + 1
    found = torch.stack(rows)
    yield Answers(found[:, 0], found[:, 1:], y)


def audited(
    name: str, found: Answers, chosen: Sequence[Variant], classes: tuple[str, ...]
) -> AuditedImages:
    """Return the effect of every variant, and the images that flip first."""
    before = found.plain.argmax(dim=1)
    own = probability(found.plain[:, None], before)[:, 0]
    after = probability(found.varied, before)
    effects = []
    for v, variant in enumerate(chosen):
        now = found.varied[:, v].argmax(dim=1)
        rights = None if found.y is None else (before == found.y, now == found.y)
        effects.append(
            Effect(
                variant,
                is_kept=now == before,
                stays=share(now == before),
                accuracy=None if rights is None else share(rights[0]),
                new_accuracy=None if rights is None else share(rights[1]),
                gain=None if rights is None else change(rights[0].double(), rights[1].double()),
                change=change(own, after[:, v]),
            )
        )
    ranks = torch.tensor([variant.rank for variant in chosen])
    return AuditedImages(
        name, tuple(effects), tuple(flips(found.plain, found.varied, ranks)), classes
    )


def _places(run: LoadedRun, subjects: Subjects) -> Int[Tensor, " n"] | None:
    """Return the labels as the network counts its classes."""
    if subjects.labels is None:
        return None
    return torch.tensor([run.setup.classes.index(name) for name in subjects.labels])
