"""The audit on digits whose cause and confounder are known, at every strength of their relation."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int, UInt8
from matplotlib.axes import Axes
from torch import Tensor

from cicf.core import DataError
from cicf.core.modes import evaluating
from cicf.core.streams import generator
from cicf.data.confounded import Confounded, Kind, confounded_digits
from cicf.data.demo import CLASSES
from cicf.data.domains import DomainDataset
from cicf.experiment import LoadedRun
from cicf.report.audit import (
    Measures,
    Responses,
    change,
    measures,
    other_labels,
    share,
)
from cicf.report.estimates import Estimate
from cicf.report.figures import COLOURS, LINES, MARKERS, save_figure, styled

STRENGTHS = (-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0)
"""Of the relation: 1 where the confounder always is the label's, 0 at random, −1 reversed."""
BATCH = 256
HEAD = ("run", "strength", "measure", "mean", "low", "high", "images")
PANELS = {
    "accuracy": "as observed: right\n(causal: level)",
    "stays": "do(confounder): prediction stays\n(causal: 100 %)",
    "new_accuracy": "do(cause): is the new label\n(causal: 100 %)",
}
Classifier = Callable[[UInt8[Tensor, "n 3 32 32"]], Int[Tensor, " n"]]
"""Tells the digit in each image."""


class AuditedRun(NamedTuple):
    """Holds what the audit of one classifier found, at each strength."""

    name: str
    found: dict[float, Measures]

    @property
    def images(self) -> int:
        """Return how many images were looked at."""
        return len(self.found[STRENGTHS[0]].accuracy)

    def estimates(self, measure: str) -> dict[float, Estimate]:
        """Return a measure at each strength, with its interval over the images."""
        return {at: share(found._asdict()[measure]) for at, found in self.found.items()}

    def differences(self, other: "AuditedRun", measure: str) -> dict[float, Estimate]:
        """Return by how much a measure is larger than that of another run, image by image."""
        own, theirs = (
            {at: found._asdict()[measure] for at, found in run.found.items()}
            for run in (self, other)
        )
        return {at: change(theirs[at], own[at]) for at in own}


def digits_of(run: LoadedRun) -> Classifier:
    """Return the network of a run as a classifier of digits, which must be among its classes."""
    missing = [name for name in CLASSES if name not in run.setup.classes]
    if missing:
        raise DataError(
            f"the network does not know the digit {missing[0]!r}; its classes are "
            f"{', '.join(run.setup.classes)}, so name images of these with --data or --images"
        )
    digits = torch.tensor(
        [CLASSES.index(name) if name in CLASSES else -1 for name in run.setup.classes]
    )

    def classified(images: UInt8[Tensor, "n 3 32 32"]) -> Int[Tensor, " n"]:
        unknown = torch.zeros(len(images), dtype=torch.int64)
        data = DomainDataset(images, unknown, unknown, CLASSES, ("all",))
        found = []
        with evaluating(run.model), torch.inference_mode():
            for places in torch.arange(len(images)).split(BATCH):
                batch = run.transform.evaluation(data, places).to(run.device)
                found.append(run.model(batch).argmax(dim=1).cpu())
        return digits[torch.cat(found)]

    return classified


def held_out_digits(kind: Kind, *, most: int | None = None) -> Confounded:
    """Return the digits that no run was trained on, or the first of them."""
    found = confounded_digits(strength=0.0, kind=kind, part="test")
    return replace(
        found, ink=found.ink[:most], y=found.y[:most], confounder=found.confounder[:most]
    )


def responses(classify: Classifier, data: Confounded) -> Iterator[Responses | int]:
    """Predict every digit, and another in its place, before every confounder.

    Yields how many of the confounders are done, and the responses at the end.
    """
    partner = other_labels(data.y, generator(data.seed, "audit", "cause"))
    swapped = data.do_cause(data.ink[partner], data.y[partner])
    columns: list[tuple[Int[Tensor, " n"], Int[Tensor, " n"]]] = []
    for value in range(len(CLASSES)):
        confounder = torch.full_like(data.y, value)
        kept, changed = (
            classify(each.do_confounder(confounder).rendered().images) for each in (data, swapped)
        )
        columns.append((kept, changed))
        yield len(columns)
    own, other = (torch.stack(each, dim=1) for each in zip(*columns, strict=True))
    yield Responses(own, other, data.y, swapped.y)


def audited(name: str, found: Responses, kind: Kind) -> AuditedRun:
    """Return what is true of each image at each strength of the relation."""
    by_strength = {}
    for strength in STRENGTHS:
        drawn = confounded_digits(
            strength=abs(strength),
            kind=kind,
            relation="reversed" if strength < 0 else "tied",
            part="test",
        )
        by_strength[strength] = measures(found, drawn.confounder[: len(found.y)])
    return AuditedRun(name, by_strength)


def rows_of(runs: Sequence[AuditedRun]) -> list[tuple[object, ...]]:
    """Return a row for each run, measure and strength."""
    return [
        (run.name, strength, measure, *estimate, run.images)
        for run in runs
        for measure in Measures._fields
        for strength, estimate in run.estimates(measure).items()
    ]


def save_audit(
    runs: Sequence[AuditedRun], output: Path, *, kind: Kind, command: str
) -> tuple[Path, ...]:
    """Draw the three measures against the strength of the relation, a line for each run."""
    with styled(7.2, 2.9) as figure:
        axes = figure.subplots(1, len(PANELS), sharey=True)
        for axis, (measure, title) in zip(axes, PANELS.items(), strict=True):
            axis.set(xticks=(-1, -0.5, 0, 0.5, 1), ylim=(-3, 103))
            axis.set_title(title, fontsize=8)
            for place, run in enumerate(runs):
                _draw(axis, run, measure, place)
        axes[0].set_ylabel("share of images in %")
        axes[1].set_xlabel(f"relation of the {kind} to the label: −1 reversed, 0 none, 1 always")
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(runs)))
        return save_figure(figure, output, head=HEAD, rows=rows_of(runs), command=command)


def _draw(axis: Axes, run: AuditedRun, measure: str, place: int) -> None:
    """Draw one measure of one run as a line in the band of its interval."""
    percents = [each.percents for each in run.estimates(measure).values()]
    (means, low, high), strengths = zip(*percents, strict=True), list(run.found)
    # Beyond as many runs as there are colours, the same come again.
    colour, marker, line = (each[place % len(each)] for each in (COLOURS, MARKERS, LINES))
    axis.fill_between(strengths, low, high, color=colour, alpha=0.15, linewidth=0)
    axis.plot(
        strengths,
        means,
        color=colour,
        marker=marker,
        linestyle=line,
        markersize=3,
        linewidth=1.2,
        label=run.name,
    )
