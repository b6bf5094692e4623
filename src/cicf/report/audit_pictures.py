"""The figures of an audit on images: what stays under each intervention, and what flips first."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.axes import Axes

from cicf.experiment import LoadedRun
from cicf.report.audit_images import AuditedImages, Variant, changed
from cicf.report.audit_subjects import Subjects
from cicf.report.figures import COLOURS, ENDINGS, MARKERS, check_output, save_figure, styled
from cicf.report.gradcam import GridRow, save_grid

HEAD = (
    *("run", "intervention", "strength", "stays", "low", "high"),
    *("accuracy", "new_accuracy", "change", "change_low", "change_high", "images"),
)
PICTURES = 6
"""Rows of the picture, shared out among the runs."""


def rows_of(runs: Sequence[AuditedImages]) -> list[tuple[object, ...]]:
    """Return a row for each run, intervention and strength."""
    return [
        (
            *(run.name, effect.variant.intervention.name, effect.variant.level),
            *effect.stays,
            "" if effect.accuracy is None else effect.accuracy.value,
            "" if effect.new_accuracy is None else effect.new_accuracy.value,
            *effect.change,
            len(effect.is_kept),
        )
        for run in runs
        for effect in run.effects
    ]


def save_effects(runs: Sequence[AuditedImages], output: Path, *, command: str) -> tuple[Path, ...]:
    """Draw the share of predictions that stay: a line for each variant, a mark for each run."""
    labels = [effect.variant.label for effect in runs[0].effects]
    with styled(5.2, 0.9 + 0.17 * len(labels) + 0.15 * len(runs)) as figure:
        axis = figure.subplots()
        for place, run in enumerate(runs):
            percents = [effect.stays.percents for effect in run.effects]
            means = [mean for mean, _, _ in percents]
            below = [mean - low for mean, low, _ in percents]
            above = [high - mean for mean, _, high in percents]
            # Side by side within a line, the first run on top.
            shift = 0.5 * ((place + 0.5) / len(runs) - 0.5)
            axis.errorbar(
                means,
                [row + shift for row in range(len(labels))],
                xerr=(below, above),
                fmt=MARKERS[place % len(MARKERS)],
                color=COLOURS[place % len(COLOURS)],
                markersize=3.5,
                linewidth=0.8,
                label=run.name,
            )
        _mark_interventions(axis, runs[0])
        axis.set(xlim=(-2, 102), ylim=(len(labels) - 0.5, -0.5))
        axis.set_yticks(range(len(labels)), labels)
        axis.set_xlabel("predictions that stay in %")
        figure.legend(loc="outside lower center", ncols=min(3, len(runs)))
        return save_figure(figure, output, head=HEAD, rows=rows_of(runs), command=command)


def save_flips(
    runs: Sequence[AuditedImages],
    loaded: Mapping[str, LoadedRun],
    subjects: Subjects,
    variants: Sequence[Variant],
    output: Path,
) -> tuple[Path, ...]:
    """Write pictures of the images that flip first, as the networks see them; none if none does."""
    rows = [
        row
        for run in runs
        for row in _rows(run, loaded[run.name], subjects, variants, max(2, PICTURES // len(runs)))
    ]
    if not rows:
        return ()
    stem = check_output(output)
    files = tuple(stem.with_name(f"{stem.name}-flips{ending}") for ending in ENDINGS)
    for file in files:
        save_grid(file, rows, ("original", "after the intervention"))
    return files


def _mark_interventions(axis: Axes, run: AuditedImages) -> None:
    """Draw a line between one intervention and the next."""
    names = [effect.variant.intervention.name for effect in run.effects]
    for row in range(1, len(names)):
        if names[row] != names[row - 1]:
            axis.axhline(row - 0.5, color="0.8", linewidth=0.6)
    axis.grid(visible=False, axis="y")


def _rows(
    run: AuditedImages,
    loaded: LoadedRun,
    subjects: Subjects,
    variants: Sequence[Variant],
    most: int,
) -> list[GridRow]:
    rows = []
    for flip in run.flips[:most]:
        subject, variant = subjects[flip.image], variants[flip.variant]
        pictures = [
            loaded.transform.centre(image) for image in (subject.image, changed(subject, variant))
        ]
        before = f"{run.classes[flip.before]} ({100 * flip.sure:.0f} %)"
        after = f"{run.classes[flip.after]} ({100 * flip.new_sure:.0f} %)"
        rows.append(
            GridRow(
                f"{run.name}: {subject.name} {variant.label}",
                (pictures[0], pictures[1]),
                (before, after),
            )
        )
    return rows
