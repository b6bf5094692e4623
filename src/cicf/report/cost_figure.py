"""The figure of what runs took: a bar for each, in the phases of a training."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from matplotlib.axes import Axes

from cicf.report.cost import Cost, CostTable
from cicf.report.figures import COLOURS, save_figure, styled

WIDTH, BAR, FRAME = 6.5, 0.3, 1.1
"""Inches: of the figure, of a bar's height, and of what is around the bars of a panel."""
HEAD = (
    *("run", "label", "data", "fingerprint", "protocol", "model", "method", "domain", "seed"),
    *("epochs", "steps", "threads", "phase", "seconds", "seconds_per_epoch", "percent"),
    *("peak_memory", "against", "times_erm", "memory_times_erm"),
)
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "++++", "oooo")
"""Once there are more phases than colours."""
_LABEL = 44
"""Letters of a label before it goes on below."""


def save_costs(tables: Sequence[CostTable], output: Path, *, command: str) -> tuple[Path, ...]:
    """Draw seconds by phase, a panel for each table, and store figure and data."""
    phases = list(dict.fromkeys(phase for table in tables for phase in table.phases))
    heights = [FRAME + BAR * len(table.costs) for table in tables]
    with styled(WIDTH, sum(heights) + 0.3) as figure:
        panels = figure.subplots(len(tables), 1, squeeze=False, height_ratios=heights).flatten()
        for panel, table in zip(panels, tables, strict=True):
            _draw(panel, table, phases)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 5), fontsize=7
        )
        rows = list(rows_of(tables))
        return save_figure(figure, output, head=HEAD, rows=rows, command=command)


def rows_of(tables: Sequence[CostTable]) -> Iterator[Sequence[object]]:
    """Yield the data of the figure: a row for each run and phase, and one for each run."""
    for table in tables:
        for cost in table.costs:
            shared = (table.data, table.fingerprint, table.protocol, table.model)
            named = (cost.path, cost.label, *shared, cost.method, cost.domain, cost.seed)
            head = (*named, cost.epochs, cost.steps, cost.threads)
            for phase, seconds in [*cost.seconds.items(), ("total", cost.total)]:
                ratios = (cost.peak_memory, cost.against, cost.times_erm, cost.memory_times_erm)
                share = 100 * seconds / cost.total if cost.total else 0.0
                tail = ratios if phase == "total" else (None,) * len(ratios)
                yield (*head, phase, seconds, seconds / cost.epochs, share, *tail)


def _draw(panel: Axes, table: CostTable, phases: Sequence[str]) -> None:
    places = list(range(len(table.costs)))
    left = [0.0] * len(places)
    for number, phase in enumerate(phases):
        widths = [cost.seconds.get(phase, 0.0) / cost.epochs for cost in table.costs]
        panel.barh(
            places,
            widths,
            left=left,
            height=0.7,
            color=COLOURS[number % len(COLOURS)],
            hatch=HATCHES[number // len(COLOURS)],
            edgecolor="white",
            linewidth=0.4,
            label=phase,
        )
        left = [a + b for a, b in zip(left, widths, strict=True)]
    for place, cost in zip(places, table.costs, strict=True):
        panel.annotate(
            _said(cost),
            (left[place], place),
            (3, 0),
            textcoords="offset points",
            va="center",
            fontsize=6.5,
        )
    panel.set_yticks(places, [fill(cost.label, _LABEL) for cost in table.costs], fontsize=7)
    panel.set_ylim(len(places) - 0.4, -0.6)
    panel.set_xlim(0, max([*left, 1e-9]) * 1.3)
    panel.set_axisbelow(True)
    panel.grid(visible=False, axis="y")
    panel.set_xlabel("seconds of an epoch")
    panel.set_title(table.title, fontsize=8)


def _said(cost: Cost) -> str:
    said = f"{cost.per_epoch:.3g} s"
    if cost.times_erm is not None:
        said += f", {cost.times_erm:.1f} × ERM"
    return said
