"""Where a network looks: Grad-CAM (Selvaraju et al., 2017) and the pictures made of it."""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from captum.attr import LayerGradCam  # type: ignore[import-untyped]  # captum ships no types
from jaxtyping import Float, Int, UInt8
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from torch import Tensor, nn

from cicf.core import ConfigError, DataError, did_you_mean
from cicf.core.files import replacing
from cicf.core.modes import evaluating, outputs_of

ENDINGS = (".png", ".pdf", ".svg", ".jpg")
_ENOUGH_PLACES = 4
"""Places along a side below which a map is too coarse to show anything."""
_TOLD_THEIR_SIZE = (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)
"""Modules that put out as many places as they are told to, however few they see."""
_OPACITY = 0.75
"""Share of colour where a map is at its peak; the rest lets the image show through."""
_CELL, _SMALL = 1.3, 64
"""Width of a drawn picture in inches, and of one whose single pixels are to be seen in pixels."""
_wrapped = textwrap.TextWrapper(width=20).fill
Shape = tuple[int, ...]


class GridRow(NamedTuple):
    """Is one row of a grid: what stands left of it, its pictures, and a line under each."""

    title: str
    pictures: tuple[UInt8[Tensor, "3 h w"], ...]
    captions: tuple[str, ...]


def cam_layer(network: nn.Module, image: Float[Tensor, "1 3 h w"]) -> str:
    """Return the name of the module whose map Grad-CAM reads: the deepest of 4x4 places or more.

    Of maps of one size it is that of the last whole stage. Found by running the image, on whose
    size the answer depends.
    """
    return _last_map(network, _outputs(network, image), tuple(image.shape))


def grad_cam(
    model: nn.Module,
    images: Float[Tensor, "n 3 h w"],
    classes: Int[Tensor, " n"],
    *,
    layer: str | None = None,
) -> Float[Tensor, "n h w"]:
    """Return what speaks for the given class at each pixel, from 0 to 1, the peak of its own map.

    A map in which nothing speaks for the class is zero everywhere. Without a layer it is that of
    `cam_layer`. The model is run in evaluation mode and left as it was.
    """
    if len(images) == 0:
        return images[:, 0]
    outputs = _outputs(model, images[:1])
    _check_classes(classes, outputs[""][-1])
    if layer is None:
        layer = _last_map(model, outputs, tuple(images[:1].shape))
    _check_layer(layer, model, outputs, tuple(images[:1].shape))
    reader = LayerGradCam(model, model.get_submodule(layer))
    with evaluating(model):
        maps = reader.attribute(images, classes.long().to(images.device), relu_attributions=True)
    cam = F.interpolate(maps.detach(), images.shape[2:], mode="bilinear", align_corners=False)[:, 0]
    peak = cam.amax(dim=(1, 2), keepdim=True)
    return cam / torch.where(peak > 0, peak, 1)


def overlay(image: UInt8[Tensor, "3 h w"], cam: Float[Tensor, "h w"]) -> UInt8[Tensor, "3 h w"]:
    """Return the image in grey under the map in colour, which is denser where the map is higher.

    The image loses its own colours, so that colour means the map and nothing else.
    """
    cam = cam.detach().cpu().double().clamp(0, 1)
    luma = torch.tensor([0.299, 0.587, 0.114], dtype=torch.float64)[:, None, None]
    grey = (image.cpu() * luma).sum(dim=0)
    # From yellow to red: no end of it is dark, so that a peak stands out on black and on white.
    colours = torch.from_numpy(colormaps["autumn_r"](cam.numpy())).permute(2, 0, 1)[:3] * 255
    return torch.lerp(grey.expand(3, -1, -1), colours, _OPACITY * cam).round().to(torch.uint8)


def save_grid(path: Path, rows: Sequence[GridRow], columns: Sequence[str]) -> None:
    """Write a figure with a row for each image and a column for each view of it.

    The ending of the path decides the format. The file appears whole or not at all.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ConfigError(
            f"path={str(path)!r} ends in {path.suffix!r}, but the ending decides the format and "
            f"must be one of {', '.join(ENDINGS)}; rename it, for example to {path.stem}.png"
        )
    _check_rows(rows, columns)
    figure = _drawn(rows, columns)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=ending[1:], bbox_inches="tight", pad_inches=0.05)


def show_picture(axis: Axes, picture: UInt8[Tensor, "3 h w"], caption: str) -> None:
    """Draw a picture in a frame, with a caption below."""
    # A large picture is drawn smaller than it is, and would lose whole lines of pixels.
    filtering = "nearest" if max(picture.shape[1:]) <= _SMALL else "antialiased"
    axis.imshow(picture.permute(1, 2, 0).cpu().numpy(), interpolation=filtering)
    axis.grid(False)
    axis.set(xticks=[], yticks=[])
    axis.spines[:].set(visible=True, linewidth=0.4, color="0.6")
    axis.set_xlabel(caption, fontsize=7, labelpad=3, parse_math=False)


def _outputs(network: nn.Module, image: Float[Tensor, "1 3 h w"]) -> dict[str, Shape]:
    """Return the shape that each module puts out, by name, in the order they are put out."""
    shapes: dict[str, Shape] = {}
    for name, output in outputs_of(network, image):
        # A module that is run again counts where it ran last, as it does to captum.
        shapes.pop(name, None)
        if isinstance(output, Tensor):
            shapes[name] = tuple(output.shape)
    return shapes


def _last_map(network: nn.Module, outputs: Mapping[str, Shape], image: Shape) -> str:
    # What is still an image, normalised for example, is no map yet.
    maps = [name for name, shape in outputs.items() if _is_map(shape, image) and shape != image]
    known: list[str] = []
    for name, shape in outputs.items():
        if name in maps and not isinstance(network.get_submodule(name), _TOLD_THEIR_SIZE):
            known.append(name)
        # Tokens, or a map with its channels last, mix the places of the maps before them; inside a
        # module that puts out a map they are its own affair.
        elif len(shape) > 2 and not _has_sides_of(image, shape) and not _around(name, maps):
            known.clear()
    if not known:
        raise ConfigError(
            "the network ends in tokens or linear layers, without a last map for Grad-CAM to read; "
            "name a layer that puts out [n, channels, height, width] by layer=..."
        )

    def rank(name: str) -> tuple[bool, int, int]:
        side = min(outputs[name][2:])
        return side < _ENOUGH_PLACES, abs(side - _ENOUGH_PLACES), len(_around(name, maps))

    return min(reversed(known), key=rank)  # reversed: of equals, the last to be put out


def _is_map(shape: Shape, image: Shape) -> bool:
    return _has_sides_of(image, shape) and max(shape[2:]) > 1


def _has_sides_of(image: Shape, shape: Shape) -> bool:
    """Return whether a shape is [1, channels, height, width] with the proportions of the image."""
    if len(shape) != 4 or shape[0] != 1:
        return False
    (height, width), (tall, wide) = image[2:], shape[2:]
    # Strides and missing padding round the sides; channels in the place of a side are far off.
    return abs(tall / height - wide / width) * min(height, width) <= 2


def _around(name: str, others: Collection[str]) -> list[str]:
    return [other for other in others if name.startswith(other + ".")]


def _check_classes(classes: Int[Tensor, " n"], num_classes: int) -> None:
    wrong = classes[(classes < 0) | (classes >= num_classes)].tolist()
    if wrong:
        raise DataError(f"class {wrong[0]} is not one of the model's, 0 to {num_classes - 1}")


def _check_layer(layer: str, model: nn.Module, outputs: Mapping[str, Shape], image: Shape) -> None:
    names = [name for name, _ in model.named_modules() if name]
    if layer not in names:
        hint = did_you_mean(layer, names)
        raise ConfigError(f"layer={layer!r} is no module of the model; {hint}")
    if layer not in outputs:
        raise ConfigError(f"layer={layer!r} puts out no tensor in the forward; name one that does")
    if not _is_map(outputs[layer], image):
        raise ConfigError(
            f"layer={layer!r} puts out {list(outputs[layer])}, which is no map of places in an "
            f"image of {list(image)}; name one that puts out [n, channels, height, width]"
        )


def _check_rows(rows: Sequence[GridRow], columns: Sequence[str]) -> None:
    if not rows or not columns:
        raise DataError("a grid of no rows or no columns shows nothing; pass at least one of each")
    for title, pictures, captions in rows:
        if not len(pictures) == len(captions) == len(columns):
            raise DataError(
                f"row {title!r} has {len(pictures)} pictures and {len(captions)} captions for "
                f"{len(columns)} columns; give one of each for every column"
            )


def _drawn(rows: Sequence[GridRow], columns: Sequence[str]) -> Figure:
    tall = [max(picture.shape[1] / picture.shape[2] for picture in row.pictures) for row in rows]
    size = _CELL * (len(columns) + 1), _CELL * sum(tall) + 0.3 * len(rows) + 0.4
    figure = Figure(figsize=size, dpi=200, layout="compressed")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), len(columns), squeeze=False, height_ratios=tall)
    for row, line in zip(rows, axes, strict=True):
        for axis, picture, caption in zip(line, row.pictures, row.captions, strict=True):
            show_picture(axis, picture, _wrapped(caption))
        line[0].set_ylabel(
            _wrapped(row.title), rotation=0, ha="right", va="center", fontsize=8, parse_math=False
        )
    for axis, title in zip(axes[0], columns, strict=True):
        axis.set_title(_wrapped(title), fontsize=8, pad=4, parse_math=False)
    return figure
