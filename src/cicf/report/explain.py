"""Where trained networks look, as a picture: images, and beside each the Grad-CAM of every run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from cicf.experiment import LoadedRun
from cicf.report.gradcam import GridRow, grad_cam, overlay, save_grid


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
    sure = run.probabilities(images)
    shown = (
        sure.argmax(dim=1) if class_ is None else torch.full((len(images),), classes.index(class_))
    )
    # As a name inside of the network, which the user knows, not of what holds it.
    cams = [_cam(run, image, int(each), layer) for image, each in zip(images, shown, strict=True)]
    pictures = [overlay(run.transform.centre(i), cam) for i, cam in zip(images, cams, strict=True)]
    captions = [
        f"{classes[int(each)]} ({100 * float(row[int(each)]):.0f} %)"
        for row, each in zip(sure, shown, strict=True)
    ]
    return list(zip(pictures, captions, strict=True))


def _cam(
    run: LoadedRun, image: UInt8[Tensor, "3 _ _"], class_: int, layer: str | None
) -> Float[Tensor, "s s"]:
    prepared = run.prepared([image])
    return grad_cam(run.model.network, prepared, torch.tensor([class_]), layer=layer)[0].cpu()
