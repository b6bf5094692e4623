"""What a page shows of networks, as plain values: pictures, maps, points, and what is missing."""

import base64
from io import BytesIO
from typing import NamedTuple

from PIL import Image

from cicf.report.grid import Grid

_SMALL = 64
"""Side in pixels up to which a picture is kept to the pixel; larger ones are photographs."""
_QUALITY = 80


class Map(NamedTuple):
    """Is where one network looks in an image."""

    label: str
    picture: str
    predicted: str
    is_right: bool
    probability: float
    """Of the true class, which the map is for."""
    values: str
    """The map from 0 to 255, a byte a place, row by row, as base64."""
    side: int
    """Places along a side of `values`."""


class Look(NamedTuple):
    """Is an image, and where the networks look in it."""

    picture: str
    title: str
    class_: str
    domain: str
    is_small: bool
    """Whether single pixels are to be seen."""
    maps: tuple[Map, ...]


class Cloud(NamedTuple):
    """Is what one network makes of the images, in a plane: x and y from 0 to 1."""

    label: str
    points: tuple[tuple[float, float], ...]


class Clouds(NamedTuple):
    """Holds the same images as several networks see them."""

    clouds: tuple[Cloud, ...]
    images: tuple[str, ...]
    classes: tuple[str, ...]
    domains: tuple[str, ...]
    compact: Grid | None
    """How compact classes are as features, on sources and target apart; None if not measured."""
    sprite: str
    """All images as one picture, so many in a row."""
    columns: int
    side: int


class Case(NamedTuple):
    """Holds what was seen of networks that held the same domains out."""

    tested: tuple[str, ...]
    runs: tuple[tuple[str, str], ...]
    """Labels, and the folder of the run that was looked into."""
    looks: tuple[Look, ...]
    clouds: Clouds | None


class Views(NamedTuple):
    """Holds what was seen of the networks of a table, and why something was not."""

    cases: tuple[Case, ...] = ()
    missing: tuple[str, ...] = ()


def data_uri(image: Image.Image) -> str:
    """Return a picture as an address that holds it: to the pixel if small, else as JPEG."""
    kind = "PNG" if max(image.size) <= _SMALL else "JPEG"
    return _uri(image, kind)


def sprite_uri(image: Image.Image) -> str:
    """Return many small pictures as one JPEG."""
    return _uri(image, "JPEG")


def _uri(image: Image.Image, kind: str) -> str:
    content = BytesIO()
    options: dict[str, object] = {"quality": _QUALITY} if kind == "JPEG" else {}
    image.save(content, format=kind, optimize=True, **options)
    return f"data:image/{kind.lower()};base64,{base64.b64encode(content.getvalue()).decode()}"
