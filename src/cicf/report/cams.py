"""Grad-CAMs of trained networks on images of a data set, a batch at a time."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.modes import evaluating
from cicf.data.domains import DomainDataset
from cicf.experiment import LoadedRun
from cicf.report.chosen import chosen_images, class_ids, class_names, domain_names, image_name
from cicf.report.gradcam import grad_cam, overlay

__all__ = ["CamRow", "CamView", "Looked", "cam_rows", "chosen_images", "look", "looks"]

_PIXELS, _MOST = 16 * 224**2, 128
"""Pixels, and images, whose maps are made at a time: all activations are kept for the gradient."""


class Looked(NamedTuple):
    """Holds what a network makes of a batch: maps for one class each, and all probabilities."""

    cams: Float[Tensor, "n s s"]
    probabilities: Float[Tensor, "n classes"]
    shown: Int[Tensor, " n"]
    """The class of each map, as the network numbers them."""


class CamView(NamedTuple):
    """Is what one run makes of an image."""

    overlay: UInt8[Tensor, "3 s s"]
    predicted: str
    probability: float
    """Of the class that the map is for, which is the true one unless another was asked for."""
    cam: Float[Tensor, "s s"]


class CamRow(NamedTuple):
    """Is an image as the first run sees it, and what every run makes of it."""

    image: UInt8[Tensor, "3 s s"]
    domain: str
    class_: str
    title: str
    views: tuple[CamView, ...]


def cam_rows(
    runs: Mapping[str, LoadedRun],
    data: DomainDataset,
    indices: Sequence[int],
    *,
    class_: str = "true",
    layer: str | None = None,
) -> list[CamRow]:
    """Return a row for each image at these places, with a view for each run.

    The maps are for the `true` class, for the one that each run has `predicted`, or for a named
    one.
    """
    if not indices:
        return []
    columns = [_views(run, data, indices, class_=class_, layer=layer) for run in runs.values()]
    first = next(iter(runs.values()))
    images = data.view(first.transform.evaluated_view, torch.tensor(indices))
    known = zip(domain_names(data, indices), class_names(data, indices), strict=True)
    return [
        CamRow(images[i], domain, name, image_name(data, indices[i]), tuple(each))
        for i, ((domain, name), each) in enumerate(
            zip(known, zip(*columns, strict=True), strict=True)
        )
    ]


def looks(
    run: LoadedRun,
    data: DomainDataset,
    indices: Sequence[int],
    *,
    class_: str = "true",
    layer: str | None = None,
) -> Iterator[tuple[list[int], Looked]]:
    """Yield the places of a batch and what the network makes of it, until all are done."""
    for places in torch.tensor(indices, dtype=torch.int64).split(_at_once(run)):
        images = run.transform.evaluation(data, places).to(run.device)
        shown = _classes(run, data, places.tolist(), class_)
        yield places.tolist(), look(run, images, shown, layer=layer)


def look(
    run: LoadedRun,
    images: Float[Tensor, "n 3 s s"],
    classes: Int[Tensor, " n"] | None = None,
    *,
    layer: str | None = None,
) -> Looked:
    """Return maps for these classes, or the predicted ones, of images as the network takes them."""
    with evaluating(run.model), torch.no_grad():
        sure = run.model(images).softmax(dim=1).cpu()
    shown = sure.argmax(dim=1) if classes is None else classes
    # A layer is a name inside of the network, which the user knows, not of what holds it.
    cams = grad_cam(run.model.network, images, shown, layer=layer).cpu()
    return Looked(cams, sure, shown)


def _views(
    run: LoadedRun,
    data: DomainDataset,
    indices: Sequence[int],
    *,
    class_: str,
    layer: str | None,
) -> list[CamView]:
    views = []
    for places, found in looks(run, data, indices, class_=class_, layer=layer):
        images = data.view(run.transform.evaluated_view, torch.tensor(places))
        predicted = found.probabilities.argmax(dim=1)
        shown = found.probabilities.gather(1, found.shown[:, None])[:, 0]
        views += [
            CamView(overlay(image, cam), run.setup.classes[each], probability, cam)
            for image, cam, each, probability in zip(
                images, found.cams, predicted.tolist(), shown.tolist(), strict=True
            )
        ]
    return views


def _classes(
    run: LoadedRun, data: DomainDataset, places: Sequence[int], class_: str
) -> Int[Tensor, " n"] | None:
    """Return the numbers of the classes to show; None for what the network predicts."""
    if class_ == "predicted":
        return None
    if class_ != "true":
        return class_ids(run, [class_] * len(places))
    names = class_names(data, places)
    if "" in names:
        title = image_name(data, places[names.index("")])
        raise ConfigError(
            f"the true class of {title} is not known; name it with --class, or ask for the "
            "predicted one"
        )
    return class_ids(run, names)


def _at_once(run: LoadedRun) -> int:
    return max(1, min(_MOST, _PIXELS // run.transform.size**2))
