"""Looking into the networks of runs for a page: Grad-CAMs and t-SNE, where they are at hand."""

import base64
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from PIL import Image
from torch import Tensor

from cicf.config import make_config
from cicf.core import CicfError, DataError
from cicf.data.domains import DomainDataset
from cicf.data.fingerprint import fingerprint
from cicf.data.views import View
from cicf.experiment import LoadedRun, open_run
from cicf.experiment.data import load_data
from cicf.report.cams import CamRow, CamView, cam_rows, chosen_images
from cicf.report.chosen import class_names, domain_names, image_name, role_of
from cicf.report.estimates import Estimate
from cicf.report.grid import NOTHING, Grid, Item, Line
from cicf.report.grouped import compact
from cicf.report.page import Section
from cicf.report.page_views import Case, Cloud, Clouds, Look, Map, Views, data_uri, sprite_uri
from cicf.report.tsne import features_of, plane
from cicf.results.runs import FoundRun

MOST_NETWORKS = 6
"""Networks beside each other above which nothing can be compared any more."""
_PICTURE, _MAP, _THUMB, _THUMBS = 160, 28, 28, 20
"""Sides of what is shown in pixels and of a map in places; thumbnails, and how many in a row."""


class Amount(NamedTuple):
    """Says how much is looked at."""

    images: int = 6
    """Images of each domain that was held out, in the gallery."""
    points: int = 240
    """Images of all domains together, in the plane."""
    cases: int | None = None
    """How many of the targets; None for all."""


FAST = Amount(images=2, points=80, cases=1)


def network_views(
    section: Section, amount: Amount, *, root: Path | None = None
) -> Iterator[str | Views]:
    """Yield words on what is being done, and at the end what was seen.

    What is no longer at hand, weights or images, is missing with the reason.
    """
    every = list(_cases(section).items())
    cases = every[: amount.cases]
    missing = [f"{', '.join(each)} is left out, to be fast" for each, _ in every[len(cases) :]]
    missing += _left_out(section)
    yield f"{section.table.data}: images"
    try:
        data = _data(section, root)
    except (CicfError, OSError) as error:
        yield Views(missing=(*missing, f"no networks are shown: {error}"))
        return
    found: list[Case] = []
    for tested, runs in cases:
        yield f"{section.table.data}: networks that were tested on {', '.join(tested) or 'nothing'}"
        opened, gaps = _opened(runs)
        missing += gaps
        if opened:
            case, gaps = _case(tested, runs, opened, data, amount)
            missing += gaps
            found.append(case)
    yield Views(tuple(found), tuple(missing))


def _cases(section: Section) -> dict[tuple[str, ...], dict[str, FoundRun]]:
    """Return by what was tested the run of the lowest seed of each row."""
    found: dict[tuple[str, ...], dict[str, FoundRun]] = {}
    for label in _shown(section):
        for run in sorted(section.runs[label], key=_seed):
            tested = run.record.setup.protocol.tested
            found.setdefault(tested, {}).setdefault(label, run)
    return found


def _seed(run: FoundRun) -> int:
    seed = run.record.config.get("seed")
    return seed if isinstance(seed, int) else 0


def _shown(section: Section) -> list[str]:
    """Return the rows whose networks are shown: of each method the first, then others."""
    rows = section.table.rows
    first = {row.method: row.label for row in reversed(rows)}
    ranked = sorted((row.label for row in rows), key=lambda label: label not in first.values())
    return [row.label for row in rows if row.label in ranked[:MOST_NETWORKS]]


def _left_out(section: Section) -> list[str]:
    shown = _shown(section)
    names = [row.label for row in section.table.rows if row.label not in shown]
    if not names:
        return []
    return [f"the networks of {', '.join(names)} are not shown; {MOST_NETWORKS} is the most"]


def _data(section: Section, root: Path | None) -> DomainDataset:
    record = next(iter(section.runs.values()))[0].record
    config = make_config(record.config).data
    config = config.model_copy(update={"root": root}) if root is not None else config
    data = load_data(config, is_for_training=False, checks_images=False).data
    at_hand, expected = fingerprint(data), section.table.fingerprint
    if at_hand != expected:
        raise DataError(
            f"the images of {config.name} at hand have the fingerprint {at_hand}, those of the "
            f"runs {expected}; name the folder of the others with --root"
        )
    return data


def _opened(runs: Mapping[str, FoundRun]) -> tuple[dict[str, LoadedRun], list[str]]:
    found: dict[str, LoadedRun] = {}
    missing: list[str] = []
    for label, run in runs.items():
        try:
            found[label] = open_run(run.path)
        except (CicfError, OSError) as error:
            missing.append(f"the network of {label} is not shown: {error}")
    return found, missing


def _case(
    tested: tuple[str, ...],
    runs: Mapping[str, FoundRun],
    opened: Mapping[str, LoadedRun],
    data: DomainDataset,
    amount: Amount,
) -> tuple[Case, list[str]]:
    missing: list[str] = []
    looks: list[Look] = []
    clouds: Clouds | None = None
    try:
        chosen = chosen_images(data, tested or data.domains, per_domain=amount.images)
        rows = cam_rows(opened, data, chosen)
        looks = [_look(row, list(opened)) for row in rows]
    except (CicfError, OSError) as error:
        missing.append(f"there is no Grad-CAM: {error}")
    try:
        clouds = _clouds(opened, data, amount.points, missing)
    except (CicfError, OSError) as error:
        missing.append(f"there is no t-SNE: {error}")
    folders = tuple((label, str(runs[label].path)) for label in opened)
    return Case(tested, folders, tuple(looks), clouds), missing


def _look(row: CamRow, labels: Sequence[str]) -> Look:
    side = row.image.shape[-1]
    maps = (
        _map(label, view, class_=row.class_) for label, view in zip(labels, row.views, strict=True)
    )
    return Look(
        data_uri(_picture(row.image)), row.title, row.class_, row.domain, side <= 64, tuple(maps)
    )


def _map(label: str, view: CamView, *, class_: str) -> Map:
    side = min(_MAP, view.cam.shape[-1])
    coarse = F.adaptive_avg_pool2d(view.cam[None, None], side)[0, 0]
    values = (coarse.clamp(0, 1) * 255).round().to(torch.uint8).numpy().tobytes()
    return Map(
        label=label,
        picture=data_uri(_picture(view.overlay)),
        predicted=view.predicted,
        is_right=view.predicted == class_,
        probability=view.probability,
        values=base64.b64encode(values).decode(),
        side=side,
    )


def _picture(image: UInt8[Tensor, "3 s s"]) -> Image.Image:
    if image.shape[-1] > _PICTURE:
        image = View("squeezed", _PICTURE).of(image[None])[0]
    return Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())


def _clouds(
    opened: Mapping[str, LoadedRun], data: DomainDataset, points: int, missing: list[str]
) -> Clouds:
    per_domain = max(1, points // len(data.domains))
    places = chosen_images(data, data.domains, per_domain=per_domain)
    features = {label: features_of(run, data, places) for label, run in opened.items()}
    measured: Grid | None = None
    try:
        measured = _compactness(features, data, places, next(iter(opened.values())))
    except CicfError as error:
        missing.append(f"it is not measured how compact classes are: {error}")
    return Clouds(
        clouds=tuple(Cloud(label, _unit(plane(each))) for label, each in features.items()),
        images=tuple(image_name(data, place) for place in places),
        classes=class_names(data, places),
        domains=domain_names(data, places),
        compact=measured,
        sprite=sprite_uri(_thumbnails(data, places)),
        columns=_THUMBS,
        side=_THUMB,
    )


def _compactness(
    features: Mapping[str, Float[np.ndarray, "n _"]],
    data: DomainDataset,
    places: Sequence[int],
    run: LoadedRun,
) -> Grid:
    roles = {name: role_of(run, name) for name in data.domains}
    scores, _ = compact(features, data, places, roles)
    head = ("method", "on", "images", "silhouette", "95 %", "scatter ratio", "95 %")
    lines = (
        Line(
            "ours",
            each.run,
            (
                Item(each.on),
                Item(str(each.images), value=float(each.images)),
                *_items(each.measures.silhouette),
                *_items(each.measures.scatter_ratio),
            ),
        )
        for each in scores
    )
    return Grid("Compactness of classes", head, tuple(lines), ())


def _items(found: Estimate) -> tuple[Item, Item]:
    if found.value is None or found.low is None or found.high is None:
        return Item(NOTHING), Item(NOTHING)
    return (
        Item(f"{found.value:z.3f}", value=found.value),
        Item(f"[{found.low:z.3f}, {found.high:z.3f}]", value=found.low),
    )


def _unit(points: Float[np.ndarray, "n 2"]) -> tuple[tuple[float, float], ...]:
    """Return points in a square of side 1, with the same scale along both axes."""
    low, size = points.min(axis=0), float(np.ptp(points, axis=0).max())
    shift = (1 - np.ptp(points, axis=0) / size) / 2
    return tuple((round(float(x), 4), round(float(y), 4)) for x, y in (points - low) / size + shift)


def _thumbnails(data: DomainDataset, places: Sequence[int]) -> Image.Image:
    """Return small pictures of the images, row by row."""
    pictures = data.view(View("centre", _THUMB), torch.tensor(places))
    rows = -(-len(places) // _THUMBS)
    sheet = torch.zeros(3, rows * _THUMB, _THUMBS * _THUMB, dtype=torch.uint8)
    for number, picture in enumerate(pictures):
        top, left = number // _THUMBS * _THUMB, number % _THUMBS * _THUMB
        sheet[:, top : top + _THUMB, left : left + _THUMB] = picture
    return Image.fromarray(sheet.permute(1, 2, 0).contiguous().numpy())
