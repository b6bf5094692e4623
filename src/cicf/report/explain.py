"""Where trained networks look, as a picture: images, and beside each the Grad-CAM of every run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxtyping import Int, UInt8
from torch import Tensor

from cicf.experiment import LoadedRun
from cicf.report.cams import look
from cicf.report.chosen import class_ids
from cicf.report.gradcam import GridRow, overlay, save_grid


def explained(
    runs: Mapping[str, LoadedRun],
    images: Sequence[UInt8[Tensor, "3 _ _"]],
    *,
    titles: Sequence[str],
    output: Path,
    class_: str | None = None,
    layer: str | None = None,
) -> None:
    """Write a grid of images × (image, each run), for the predicted class or the named one."""
    columns = {name: _column(run, images, class_, layer) for name, run in runs.items()}
    first = next(iter(runs.values()))
    rows = [
        GridRow(
            title,
            (first.transform.centre(image), *(column[i][0] for column in columns.values())),
            ("", *(column[i][1] for column in columns.values())),
        )
        for i, (title, image) in enumerate(zip(titles, images, strict=True))
    ]
    save_grid(output, rows, ["image", *columns])


def _column(
    run: LoadedRun, images: Sequence[UInt8[Tensor, "3 _ _"]], class_: str | None, layer: str | None
) -> list[tuple[UInt8[Tensor, "3 s s"], str]]:
    """Return the picture and the caption of each image."""
    classes = run.setup.classes
    # One at a time: there are few, and the maps are those of each image alone.
    found = [look(run, run.prepared([image]), _ids(run, class_), layer=layer) for image in images]
    return [
        (
            overlay(run.transform.centre(image), cams[0]),
            f"{classes[int(shown)]} ({100 * float(sure[0, int(shown)]):.0f} %)",
        )
        for image, (cams, sure, shown) in zip(images, found, strict=True)
    ]


def _ids(run: LoadedRun, class_: str | None) -> Int[Tensor, " 1"] | None:
    return None if class_ is None else class_ids(run, [class_])
