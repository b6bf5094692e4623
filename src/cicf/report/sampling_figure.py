"""Predicted and observed errors of batches over M and over K, and the cosines, as a figure."""

from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from cicf.report.figures import COLOURS, LINES, MARKERS, save_figure, styled
from cicf.report.sampling import Answer
from cicf.report.sampling_errors import Cell
from cicf.report.sampling_gap import SAMPLERS

HEAD = ("part", "K", "clusters", "M", "of", "equation", "predicted", "observed", "low", "high")


def save_sampling(answer: Answer, output: Path, *, command: str) -> tuple[Path, ...]:
    """Write the figure and its data, and return the files."""
    with styled(7.2, 3.1) as figure:
        figure.set_layout_engine(ConstrainedLayoutEngine(w_pad=0.08))
        left, middle, right = figure.subplots(1, 3, width_ratios=(1.15, 1.15, 0.8))
        by_m = [each for each in answer.cells if each.k == answer.k]
        _draw_errors(left, by_m, [each.m for each in by_m])
        left.set_xscale("log", base=2)
        left.set_yscale("log")
        left.set_xticks([each.m for each in by_m], [str(each.m) for each in by_m])
        left.xaxis.set_minor_locator(NullLocator())
        left.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        left.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        left.yaxis.set_minor_formatter(NullFormatter())
        left.set(
            title=f"K = {answer.k} ({answer.head.clusters} clusters)",
            xlabel="batch size M",
            ylabel="RMS of ‖ĝ − g†‖",
        )
        by_k = sorted(
            (each for each in answer.cells if each.m == answer.m and isinstance(each.k, int)),
            key=lambda each: int(each.k),
        )
        _draw_errors(middle, by_k, list(range(len(by_k))))
        middle.set_xticks(range(len(by_k)), [str(each.k) for each in by_k])
        middle.set(title=f"M = {answer.m}", xlabel="clusters per class K", ylabel="")
        middle.set_ylim(bottom=0)
        _draw_cosines(right, answer)
        figure.legend(handles=_keys(), loc="outside lower center", ncols=3, handlelength=2.6)
        return save_figure(figure, output, head=HEAD, rows=_rows(answer), command=command)


def _draw_errors(axes: Axes, cells: Sequence[Cell], places: Sequence[int]) -> None:
    for number, kind in enumerate(SAMPLERS):
        series = [cell.series[kind] for cell in cells]
        colour = COLOURS[number]
        axes.plot(places, [each.predicted for each in series], LINES[number], color=colour, lw=1.2)
        axes.errorbar(
            places,
            [each.observed for each in series],
            yerr=[2 * each.error for each in series],
            fmt=MARKERS[number],
            color=colour,
            markersize=4,
            markerfacecolor="white",
            capsize=2,
        )
    equation = [cell.series["clustered"].equation for cell in cells]
    axes.plot(places, equation, color="0.3", linestyle=":", linewidth=1)


def _draw_cosines(axes: Axes, answer: Answer) -> None:
    found = answer.cosines
    named = (
        ("same\ncluster", found.within),
        ("same\nclass", found.same_class),
        ("any\nother", found.elsewhere),
    )
    for place, (_, each) in enumerate(named):
        if each.value is None or each.low is None or each.high is None:
            continue
        spread = [[max(each.value - each.low, 0)], [max(each.high - each.value, 0)]]
        axes.errorbar(
            [place], [each.value], yerr=spread, fmt="o", color=COLOURS[6], ms=4, capsize=3
        )
    axes.axhline(0, color="0.6", linewidth=0.8)
    axes.set_xticks(range(len(named)), [name for name, _ in named])
    axes.set_xlim(-0.6, len(named) - 0.4)
    axes.set(title=f"K = {answer.k}", ylabel="mean cosine of two gradients")


def _keys() -> list[Line2D]:
    keys = [
        Line2D([], [], color=COLOURS[number], ls=LINES[number], marker=MARKERS[number], label=kind)
        for number, kind in enumerate(SAMPLERS)
    ]
    keys.append(Line2D([], [], color="0.3", ls=":", lw=1, label="Eq. 19, N_k not rounded"))
    keys.append(Line2D([], [], color="0.5", label="predicted"))
    keys.append(Line2D([], [], color="0.5", ls="", marker="o", label="observed ± 2 SE"))
    for key in keys:
        key.set(markerfacecolor="white", markersize=4, linewidth=1.2)
    return keys


def _rows(answer: Answer) -> list[tuple[object, ...]]:
    """Return one row per point: bounds are two standard errors, or an interval of 95 %."""
    rows: list[tuple[object, ...]] = [
        (
            "error",
            cell.k,
            cell.clusters,
            cell.m,
            kind,
            each.equation,
            each.predicted,
            each.observed,
            each.observed - 2 * each.error,
            each.observed + 2 * each.error,
        )
        for cell in answer.cells
        for kind, each in cell.series.items()
    ]
    rows += [
        (
            *("gap", gap.k, gap.clusters, gap.m, gap.against, "", gap.by_chance, gap.mean),
            *(gap.mean - 2 * gap.error, gap.mean + 2 * gap.error),
        )
        for gap in answer.gaps
    ]
    cosines = answer.cosines
    for name in ("within", "same_class", "elsewhere"):
        each = getattr(cosines, name)
        if each.value is not None:
            rows.append(("cosine", answer.k, answer.head.clusters, "", name, "", "", *each))
    return rows
