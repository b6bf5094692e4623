"""Images beside the Grad-CAMs of every run, a block for each domain (figures 4 and 8)."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jaxtyping import Bool
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from cicf.experiment import LoadedRun
from cicf.report.cams import CamRow, CamView, cam_rows
from cicf.report.figures import COLOURS, save_figure, styled
from cicf.report.focus import Focus, masks_as_seen
from cicf.report.gradcam import show_picture
from cicf.report.looking import Focused, Scene, csv_of

_CELL, _GAP = 1.0, 0.1
"""Side of a picture, and the room between two, in inches."""
_CAPTION, _LINE, _EDGE = 0.3, 0.14, 0.12
"""Room for what stands under a picture, for a line of text, around everything."""
_LETTER, _WRAP = 0.075, 12
"""Width of a letter of a class's name, and how many stand in a line."""
_ACROSS = 8
"""Pictures beside each other, beyond which blocks go below each other."""
_RIGHT_AND_WRONG = COLOURS[2], COLOURS[1]
_OUTLINE = COLOURS[4]


class Block(NamedTuple):
    """Is the rows of one domain, with what stands above it and above each column."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[CamRow, ...]
    masks: tuple[Bool[Tensor, "n s s"] | None, ...]
    """For the image and for each view of it, where the object is known."""


def save_cams(
    output: Path,
    runs: Mapping[str, LoadedRun],
    scene: Scene,
    found: Focused,
    *,
    class_: str,
    layer: str | None,
    command: str,
) -> tuple[Path, ...]:
    """Draw the images of a scene, write the figure and all looks, and return the files."""
    rows = cam_rows(runs, scene.data, scene.drawn, class_=class_, layer=layer)
    blocks = _blocks(runs, scene, found, rows)
    footer = _footer(found, class_)
    head, cells = csv_of(scene, found)
    with styled(*cam_figure_size(blocks, footer)) as figure:
        draw_cams(figure, blocks, shown=class_, footer=footer)
        return save_figure(figure, output, head=head, rows=cells, command=command)


def cam_figure_size(blocks: Sequence[Block], footer: str) -> tuple[float, float]:
    """Return the width and height in inches that the blocks take."""
    lines = _lines(blocks)
    width = max(sum(_width(block) for block in line) for line in lines) + 2 * _EDGE
    heights = [max(_height(block) for block in line) for line in lines]
    return width, sum(heights) + 2 * _EDGE + _LINE * (1 + _wrapped(footer, width).count("\n"))


def draw_cams(figure: Figure, blocks: Sequence[Block], *, shown: str, footer: str) -> None:
    """Draw the blocks; `shown` is the class of the maps: true, predicted, or a name."""
    width, height = cam_figure_size(blocks, footer)
    # Places are counted in inches, so that pictures keep their size however many there are.
    figure.set_layout_engine("none")
    top = height - _EDGE
    for line in _lines(blocks):
        left = _EDGE
        for block in line:
            _draw_block(figure, block, left, top, shown)
            left += _width(block)
        top -= max(_height(block) for block in line)
    figure.text(
        *(_EDGE / width, _EDGE / height),
        _wrapped(footer, width),
        fontsize=6,
        color="0.35",
        va="bottom",
    )


def _blocks(
    runs: Mapping[str, LoadedRun], scene: Scene, found: Focused, rows: Sequence[CamRow]
) -> list[Block]:
    """Return the rows by domain, with what was measured in it as heads."""
    first = next(iter(runs.values()))
    seen = [masks_as_seen(run, scene.data, scene.drawn) for run in (first, *runs.values())]
    blocks = []
    for domain in scene.domains:
        here = [number for number, row in enumerate(rows) if row.domain == domain]
        scores = {each.run: each for each in found.focus if each.domain == domain}
        blocks.append(
            Block(
                scene.titled(domain),
                (_chance(scores), *(_head(name, scores.get(name)) for name in runs)),
                tuple(rows[number] for number in here),
                tuple(None if each is None else each[here] for each in seen),
            )
        )
    return blocks


def _chance(scores: Mapping[str, Focus]) -> str:
    areas = [each.area for each in scores.values()]
    return f"image\nobject {100 * areas[0]:.0f} %" if areas else "image"


def _head(run: str, score: Focus | None) -> str:
    name = textwrap.fill(run, 18)
    if score is None:
        return name
    energy, peak = (
        "–" if each.value is None else f"{100 * each.value:.0f} %"
        for each in (score.energy, score.pointing)
    )
    return f"{name}\nenergy {energy}\npeak {peak}"


def _footer(found: Focused, class_: str) -> str:
    which = f"{class_} class" if class_ in ("true", "predicted") else f"class {class_}"
    sentence = f"Colour: Grad-CAM for the {which}, each up to its own peak; none: a zero map."
    if not found.focus:
        return sentence
    images = sorted({each.images for each in found.focus})
    count = f"{images[0]}" if len(images) == 1 else f"{images[0]} to {images[-1]}"
    return (
        f"{sentence} Outline: the object. Above: the object's share of the pixels, its share of "
        f"the maps' energy, and that of the maps that peak in it, over {count} images of a domain."
    )


def _draw_block(figure: Figure, block: Block, left: float, top: float, shown: str) -> None:
    width, height = figure.get_size_inches()
    figure.text(
        (left + _label_width(block)) / width,
        top / height,
        block.title,
        fontsize=9,
        weight="bold",
        va="top",
    )
    first = top - _LINE - _head_height(block)
    for number, row in enumerate(block.rows):
        bottom = first - _CELL - number * (_CELL + _CAPTION)
        axes = [
            figure.add_axes(
                (
                    (left + _label_width(block) + column * (_CELL + _GAP)) / width,
                    bottom / height,
                    _CELL / width,
                    _CELL / height,
                )
            )
            for column in range(len(block.heads))
        ]
        _draw_row(axes, row, shown)
        for axis, masks in zip(axes, block.masks, strict=True):
            if masks is not None:
                _outline(axis, masks[number])
        if number == 0:
            for axis, head in zip(axes, block.heads, strict=True):
                axis.set_title(head, fontsize=7, pad=3)


def _draw_row(axes: Sequence[Axes], row: CamRow, shown: str) -> None:
    name = textwrap.shorten(row.title.rpartition("/")[2], 20, placeholder="…")
    show_picture(axes[0], row.image, name)
    axes[0].xaxis.label.set(fontsize=6, color="0.5")
    axes[0].set_ylabel(
        textwrap.fill(row.class_, _WRAP), rotation=0, ha="right", va="center", fontsize=8
    )
    for axis, view in zip(axes[1:], row.views, strict=True):
        show_picture(axis, view.overlay, _caption(view, row.class_, shown))
        axis.xaxis.label.set_fontsize(6.5)
        if row.class_:
            axis.xaxis.label.set_color(_RIGHT_AND_WRONG[view.predicted != row.class_])


def _caption(view: CamView, true: str, shown: str) -> str:
    """Return what the run says, and how probable the class of the map is to it."""
    mark = {"": "", view.predicted: "✓ "}.get(true, "✗ ")
    percent = f"{100 * view.probability:.0f} %"
    if shown == "predicted":
        return f"{mark}{view.predicted}\n{percent}"
    return f"{mark}{view.predicted}\n{'true class' if shown == 'true' else shown} {percent}"


def _outline(axis: Axes, mask: Bool[Tensor, "s s"]) -> None:
    if mask.any() and not mask.all():
        axis.contour(mask.float().numpy(), levels=[0.5], colors=[_OUTLINE], linewidths=0.6)


def _lines(blocks: Sequence[Block]) -> list[Sequence[Block]]:
    across = max(1, _ACROSS // max(len(block.heads) for block in blocks))
    return [blocks[start : start + across] for start in range(0, len(blocks), across)]


def _label_width(block: Block) -> float:
    return 0.2 + _LETTER * min(_WRAP, max(len(row.class_) for row in block.rows))


def _wrapped(text: str, width: float) -> str:
    return textwrap.fill(text, width=round(width * 22))


def _width(block: Block) -> float:
    return _label_width(block) + len(block.heads) * (_CELL + _GAP)


def _height(block: Block) -> float:
    return _LINE + _head_height(block) + len(block.rows) * (_CELL + _CAPTION) + _LINE


def _head_height(block: Block) -> float:
    return _LINE * (1 + max(head.count("\n") for head in block.heads)) + 0.1
