"""The figure of an ablation: a panel for each curve, the baseline as a line across."""

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.lines import Line2D

from cicf.report.figures import COLOURS, LINES, MARKERS, save_figure, styled
from cicf.results.curves import Ablation, Curve, Point
from cicf.results.table import Interval

WIDTH, HEIGHT = 3.6, 2.9
"""Of a panel, in inches."""
PER_ROW = 3
HEAD = (
    *("over", "option", "value", "curve", "data", "fingerprint", "protocol", "model", "method"),
    *("kind", "domain", "mean", "error", "low", "high", "df", "n", "seeds", "accuracies"),
)
_LINE = 68
"""Letters of a caption that fit below a panel."""


def save_ablation(ablation: Ablation, output: Path, *, command: str) -> tuple[Path, ...]:
    """Draw accuracy against the option, and store figure and data; return the files."""
    curves = ablation.curves
    columns = min(PER_ROW, len(curves))
    rows = -(-len(curves) // columns)
    with styled(WIDTH * columns, HEIGHT * rows) as figure:
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, curve in zip(panels, curves, strict=False):
            _draw(panel, curve, ablation)
        for panel in panels[len(curves) :]:
            panel.set_axis_off()
        return save_figure(figure, output, head=HEAD, rows=list(rows_of(ablation)), command=command)


def rows_of(ablation: Ablation) -> Iterator[Sequence[object]]:
    """Yield the data of the figure: of each point the mean, its difference, and each domain."""
    for curve in ablation.curves:
        shared = (curve.title, curve.data, curve.fingerprint, curve.protocol, curve.model)
        lines = [*curve.points, *([curve.baseline] if curve.baseline else [])]
        for point in lines:
            is_base = point is curve.baseline
            head = (ablation.over, ablation.option, point.value, *shared, curve.method)
            yield (
                *head,
                "baseline" if is_base else "mean",
                "",
                *_numbers(point.mean, point.error),
                "",
                "",
            )
            if point.difference is not None:
                yield (*head, "difference", "", *_numbers(point.difference, None), "", "")
            for domain, values in point.accuracies.items():
                mean = sum(values.values()) / len(values)
                seeds, accuracies = (" ".join(map(str, each)) for each in (values, values.values()))
                kind = "baseline, domain" if is_base else "domain"
                yield (*head, kind, domain, mean, "", "", "", "", len(values), seeds, accuracies)


def _numbers(interval: Interval, error: float | None) -> tuple[object, ...]:
    return interval.mean, error, interval.low, interval.high, interval.df, interval.n


def _draw(panel: Axes, curve: Curve, ablation: Ablation) -> None:
    places = range(len(curve.points))
    errors = [point.error or 0.0 for point in curve.points]
    line = panel.errorbar(
        places,
        [point.mean.mean for point in curve.points],
        yerr=errors if any(errors) else None,
        color=COLOURS[0],
        marker=MARKERS[0],
        linestyle=LINES[0] if ablation.is_ordered else "none",
        capsize=3,
        label=curve.title.partition(" on ")[0],
    )
    shown: list[Artist | Container] = [line]
    if curve.baseline is not None:
        shown.append(_draw_baseline(panel, curve.baseline))
    panel.set_xticks(list(places), [str(point.value) for point in curve.points])
    panel.set_xlim(-0.5, len(curve.points) - 0.5)
    panel.grid(visible=False, axis="x")
    caption = textwrap.fill(curve.caption, _LINE)
    panel.set_xlabel(f"{ablation.axis}\n", labelpad=2)
    panel.annotate(
        caption,
        (0.5, 0),
        (0, -30),
        xycoords="axes fraction",
        textcoords="offset points",
        ha="center",
        va="top",
        fontsize=5.5,
        color="0.35",
        in_layout=True,
    )
    panel.set_ylabel("accuracy in %")
    panel.set_title(curve.title, fontsize=8)
    panel.legend(handles=shown, fontsize=7)


def _draw_baseline(panel: Axes, baseline: Point) -> Line2D:
    """Draw a line across, in a band that is its error."""
    mean, error = baseline.mean.mean, baseline.error
    if error is not None:
        panel.axhspan(
            mean - error, mean + error, color=COLOURS[1], alpha=0.12, linewidth=0, zorder=0
        )
    return panel.axhline(
        mean, color=COLOURS[1], linestyle=LINES[1], label=str(baseline.value), zorder=1
    )
