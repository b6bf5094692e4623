"""Whether networks look at the object: their Grad-CAMs against masks, over many images."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from statistics import fmean
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from cicf.data.domains import DomainDataset
from cicf.experiment import LoadedRun
from cicf.report.cams import Looked, looks
from cicf.report.estimates import Estimate, mean_of, rate_of

_AS_HIGH = 1 - 1e-6
"""From what share of the peak on a pixel belongs to it: the flat border of an enlarged map."""


class Glance(NamedTuple):
    """Holds what one run makes of one image; without a mask, three of it are not known."""

    place: int
    predicted: str
    probability: float
    """Of the class that the map is for."""
    energy: float | None = None
    """Share of the map inside the mask; not a number where the map is zero."""
    hit: float | None = None
    """Whether the peak is inside the mask, 1 or 0; not a number where there is no peak."""
    area: float | None = None
    """Share of the image inside the mask: what a map that knows nothing would get."""


class Focus(NamedTuple):
    """Holds what maps of one run on the images of one domain come to."""

    run: str
    domain: str
    images: int
    zero_maps: int
    """Images in which nothing speaks for the class; they have no share and no peak to count."""
    area: float
    energy: Estimate
    pointing: Estimate


class FocusDifference(NamedTuple):
    """Holds by how much a run exceeds another on the same images of one domain."""

    run: str
    against: str
    domain: str
    energy: Estimate
    pointing: Estimate


def energy_inside(
    cams: Float[Tensor, "n h w"], masks: Bool[Tensor, "n h w"]
) -> Float[Tensor, " n"]:
    """Return the share of each map that lies inside the mask; not a number for a map of zeros.

    A map that is the same everywhere gets the area of the mask.
    """
    return (cams * masks).sum(dim=(1, 2)) / cams.sum(dim=(1, 2))


def pointing_hits(
    cams: Float[Tensor, "n h w"], masks: Bool[Tensor, "n h w"]
) -> Float[Tensor, " n"]:
    """Return whether the peak of each map lies inside the mask (Zhang et al., 2018), 1 or 0.

    Of a peak of several pixels it is the share of them; not a number for a map of zeros.
    """
    peak = cams.amax(dim=(1, 2), keepdim=True)
    is_peak = (cams >= _AS_HIGH * peak) & (peak > 0)
    return (is_peak & masks).sum(dim=(1, 2)) / is_peak.sum(dim=(1, 2))


def masks_as_seen(
    run: LoadedRun, data: DomainDataset, places: Sequence[int]
) -> Bool[Tensor, "n s s"] | None:
    """Return the masks as the network would see them, scaled and cut as the images are."""
    if data.masks is None:
        return None
    grey = data.masks[list(places)].to(torch.uint8) * 255
    as_images = grey[:, None].expand(-1, 3, -1, -1)
    return run.transform.evaluated_view.of(as_images)[:, 0] > 127


def glances(
    run: LoadedRun,
    data: DomainDataset,
    indices: Sequence[int],
    *,
    class_: str = "true",
    layer: str | None = None,
) -> Iterator[list[Glance]]:
    """Yield what a network makes of the images, batch by batch, measured where masks are known."""
    for places, found in looks(run, data, indices, class_=class_, layer=layer):
        known = found.probabilities
        predicted = [run.setup.classes[each] for each in known.argmax(dim=1).tolist()]
        shown = known.gather(1, found.shown[:, None])[:, 0].tolist()
        measured = _measured(found, masks_as_seen(run, data, places))
        yield [
            Glance(place, name, probability, *values)
            for place, name, probability, values in zip(
                places, predicted, shown, measured, strict=True
            )
        ]


def focus(run: str, domain: str, seen: Sequence[Glance]) -> Focus:
    """Return what the glances at the images of one domain come to."""
    energies, hits, areas = (_known(seen, name) for name in ("energy", "hit", "area"))
    return Focus(
        run,
        domain,
        images=len(seen),
        zero_maps=len(seen) - len(energies),
        area=fmean(areas),
        energy=mean_of(energies),
        pointing=rate_of(hits),
    )


def focus_differences(seen: Mapping[str, Sequence[Glance]], domain: str) -> list[FocusDifference]:
    """Return by how much each run exceeds the first, image by image, in one domain.

    Images on which one of two maps is zero are left out.
    """
    (first, base), *others = seen.items()
    return [
        FocusDifference(
            name,
            first,
            domain,
            mean_of(_differences(glanced, base, "energy")),
            mean_of(_differences(glanced, base, "hit")),
        )
        for name, glanced in others
    ]


def _measured(found: Looked, masks: Bool[Tensor, "n s s"] | None) -> list[tuple[float, ...]]:
    if masks is None:
        return [()] * len(found.cams)
    energies = energy_inside(found.cams, masks).tolist()
    hits = pointing_hits(found.cams, masks).tolist()
    areas = masks.float().mean(dim=(1, 2)).tolist()
    return list(zip(energies, hits, areas, strict=True))


def _known(seen: Sequence[Glance], name: str) -> list[float]:
    values = (float(getattr(glance, name)) for glance in seen)
    return [value for value in values if not isnan(value)]


def _differences(seen: Sequence[Glance], base: Sequence[Glance], name: str) -> list[float]:
    pairs = zip(seen, base, strict=True)
    found = (float(getattr(one, name)) - float(getattr(other, name)) for one, other in pairs)
    return [value for value in found if not isnan(value)]
