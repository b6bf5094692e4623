"""Features of runs side by side, as in figure 9: colour is the class, marker the domain."""

import colorsys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cicf.report.figures import COLOURS, MARKERS, save_figure, styled
from cicf.report.tsne import Embedding

_PANEL, _ACROSS = 3.1, 3
"""Side of a panel in inches, and how many stand beside each other."""
_IN_LEGEND = 20
"""Classes that a legend holds; of more, some are named where they lie."""
_HUES, _SHADES = 13, (0.42, 0.6, 0.3, 0.72, 0.5)
_LETTER = (0.019, 0.04)
"""Width and height of a letter of a class's name, as shares of the panel's side."""


def save_tsne(
    output: Path,
    embeddings: Mapping[str, Embedding],
    *,
    titles: Mapping[str, str],
    heads: Mapping[str, str],
    command: str,
) -> tuple[Path, ...]:
    """Draw a panel for each run, write figure and points, and return the files.

    `titles` are what domains are called in the legend, `heads` what stands above the panels.
    """
    rows = [
        (run, image, domain, class_, float(x), float(y))
        for run, found in embeddings.items()
        for image, domain, class_, (x, y) in zip(
            found.images, found.domains, found.classes, found.points, strict=True
        )
    ]
    with styled(*_size(len(embeddings))) as figure:
        _draw(figure, embeddings, titles, heads)
        head = ("run", "image", "domain", "class", "x", "y")
        return save_figure(figure, output, head=head, rows=rows, command=command)


def class_colours(classes: Sequence[str]) -> dict[str, str]:
    """Return a colour for each class, all different; of many, neighbours differ in hue."""
    if len(classes) <= len(COLOURS):
        return dict(zip(classes, COLOURS, strict=False))
    if len(classes) <= _IN_LEGEND:
        palette = colormaps["tab10" if len(classes) <= 10 else "tab20"]
        return {name: to_hex(palette(place)) for place, name in enumerate(classes)}
    turns = -(-len(classes) // len(_SHADES))
    return {
        name: to_hex(
            colorsys.hls_to_rgb(
                (place % _HUES + 0.5 * (place // _HUES % 2)) / _HUES,
                _SHADES[place // _HUES % len(_SHADES)],
                0.9 - 0.35 * (place // (_HUES * len(_SHADES))) / max(1, turns),
            )
        )
        for place, name in enumerate(classes)
    }


def named_places(
    points: Float[np.ndarray, "n 2"], classes: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Return the medians of as many classes as can be named without their names overlapping.

    The most numerous come first.
    """
    own, side = np.array(classes), float(np.ptp(points, axis=0).max())
    wide, high = _LETTER[0] * side, _LETTER[1] * side
    counts = {name: classes.count(name) for name in dict.fromkeys(classes)}
    found: dict[str, tuple[float, float]] = {}
    for name in sorted(counts, key=lambda each: (-counts[each], each)):
        x, y = np.median(points[own == name], axis=0).tolist()
        if all(
            abs(x - a) > wide * (len(name) + len(other)) / 2 or abs(y - b) > high
            for other, (a, b) in found.items()
        ):
            found[name] = x, y
    return found


def _size(num_panels: int) -> tuple[float, float]:
    across = min(num_panels, _ACROSS)
    down = -(-num_panels // across)
    return max(4.0, _PANEL * across + 1.1), (_PANEL + 0.45) * down + 0.3


def _draw(
    figure: Figure,
    embeddings: Mapping[str, Embedding],
    titles: Mapping[str, str],
    heads: Mapping[str, str],
) -> None:
    across = min(len(embeddings), _ACROSS)
    axes = figure.subplots(-(-len(embeddings) // across), across, squeeze=False).flatten()
    classes = list(dict.fromkeys(name for e in embeddings.values() for name in sorted(e.classes)))
    colours = class_colours(classes)
    markers = {name: MARKERS[place % len(MARKERS)] for place, name in enumerate(titles)}
    for axis, (run, found) in zip(axes, embeddings.items(), strict=False):
        _draw_panel(axis, found, colours, markers)
        axis.set_title(heads[run], fontsize=7, loc="left")
    for axis in axes[len(embeddings) :]:
        axis.set_visible(False)
    _add_legend(figure, colours, {titles[name]: marker for name, marker in markers.items()})


def _draw_panel(
    axis: Axes, found: Embedding, colours: Mapping[str, str], markers: Mapping[str, str]
) -> None:
    domains = np.array(found.domains)
    for domain, marker in markers.items():
        here = np.flatnonzero(domains == domain)
        x, y = found.points[here].T
        axis.scatter(
            x,
            y,
            s=11,
            marker=marker,
            c=[colours[found.classes[place]] for place in here],
            alpha=0.8,
            linewidths=0,
        )
    axis.grid(False)
    axis.margins(0.1)
    # The axes of t-SNE mean nothing; neither do its distances from one cluster to another.
    axis.set(xticks=[], yticks=[], aspect="equal", adjustable="datalim")
    axis.spines[:].set(visible=True, linewidth=0.4, color="0.6")
    if len(colours) > _IN_LEGEND:
        for name, (x, y) in named_places(found.points, found.classes).items():
            axis.annotate(
                name,
                (x, y),
                fontsize=5.5,
                ha="center",
                va="center",
                bbox={"boxstyle": "round,pad=0.1", "fc": "white", "ec": "none", "alpha": 0.7},
            )


def _add_legend(figure: Figure, colours: Mapping[str, str], markers: Mapping[str, str]) -> None:
    entries = [_heading("domain")]
    entries += [_entry(name, marker, "0.35") for name, marker in markers.items()]
    if len(colours) <= _IN_LEGEND:
        entries += [_heading(""), _heading("class")]
        entries += [_entry(name, "o", colour) for name, colour in colours.items()]
    else:
        entries += [_heading(""), _heading(f"{len(colours)} classes,\nsome are named")]
    figure.legend(
        handles=entries, loc="outside right upper", fontsize=7, handletextpad=0.2, borderpad=0
    )


def _heading(text: str) -> Line2D:
    return Line2D([], [], linestyle="none", label=text)


def _entry(name: str, marker: str, colour: str) -> Line2D:
    return Line2D([], [], marker=marker, color=colour, linestyle="none", markersize=4.5, label=name)
