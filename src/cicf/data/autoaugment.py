"""AutoAugment on a whole batch: images that meet the same operation go through it together."""

import math
from collections.abc import Callable
from functools import cache
from typing import Literal, NamedTuple

import torch
from jaxtyping import UInt8
from torch import Tensor

from cicf.core.torchvision_cpu import torchvision

Policy = Literal["imagenet", "svhn"]
BINS = 10
"""The levels of strength that an operation has."""
_STRONGEST = {
    "ShearX": 0.3,
    "ShearY": 0.3,
    "TranslateX": 150 / 331,
    "TranslateY": 150 / 331,
    "Rotate": 30.0,
    "Posterize": 4.0,
    "Solarize": 1.0,
}
"""What the highest level is: slope, share of the side, degrees, bits, threshold; else 0.9."""
_UNSIGNED = ("Posterize", "Solarize")


class Operation(NamedTuple):
    """Is a half of a sub-policy: what is done, how often, and how strongly."""

    name: str
    probability: float
    level: int | None = None


def _subpolicies(text: str) -> tuple[tuple[Operation, Operation], ...]:
    """Return the rows of a table: name, probability, level or -, twice."""

    def operation(name: str, probability: str, level: str) -> Operation:
        return Operation(name, float(probability), None if level == "-" else int(level))

    rows = [line.split() for line in text.strip().splitlines()]
    return tuple((operation(*row[:3]), operation(*row[3:])) for row in rows)


POLICIES: dict[Policy, tuple[tuple[Operation, Operation], ...]] = {
    "imagenet": _subpolicies("""
        Posterize 0.4 8     Rotate 0.6 9
        Solarize 0.6 5      AutoContrast 0.6 -
        Equalize 0.8 -      Equalize 0.6 -
        Posterize 0.6 7     Posterize 0.6 6
        Equalize 0.4 -      Solarize 0.2 4
        Equalize 0.4 -      Rotate 0.8 8
        Solarize 0.6 3      Equalize 0.6 -
        Posterize 0.8 5     Equalize 1.0 -
        Rotate 0.2 3        Solarize 0.6 8
        Equalize 0.6 -      Posterize 0.4 6
        Rotate 0.8 8        Color 0.4 0
        Rotate 0.4 9        Equalize 0.6 -
        Equalize 0.0 -      Equalize 0.8 -
        Invert 0.6 -        Equalize 1.0 -
        Color 0.6 4         Contrast 1.0 8
        Rotate 0.8 8        Color 1.0 2
        Color 0.8 8         Solarize 0.8 7
        Sharpness 0.4 7     Invert 0.6 -
        ShearX 0.6 5        Equalize 1.0 -
        Color 0.4 0         Equalize 0.6 -
        Equalize 0.4 -      Solarize 0.2 4
        Solarize 0.6 5      AutoContrast 0.6 -
        Invert 0.6 -        Equalize 1.0 -
        Color 0.6 4         Contrast 1.0 8
        Equalize 0.8 -      Equalize 0.6 -
    """),
    "svhn": _subpolicies("""
        ShearX 0.9 4        Invert 0.2 -
        ShearY 0.9 8        Invert 0.7 -
        Equalize 0.6 -      Solarize 0.6 6
        Invert 0.9 -        Equalize 0.6 -
        Equalize 0.6 -      Rotate 0.9 3
        ShearX 0.9 4        AutoContrast 0.8 -
        ShearY 0.9 8        Invert 0.4 -
        ShearY 0.9 5        Solarize 0.2 6
        Invert 0.9 -        AutoContrast 0.8 -
        Equalize 0.6 -      Rotate 0.9 3
        ShearX 0.9 4        Solarize 0.3 3
        ShearY 0.8 8        Invert 0.7 -
        Equalize 0.9 -      TranslateY 0.6 6
        Invert 0.9 -        Equalize 0.6 -
        Contrast 0.3 3      Rotate 0.8 4
        Invert 0.8 -        TranslateY 0.0 2
        ShearY 0.7 6        Solarize 0.4 8
        Invert 0.6 -        Rotate 0.8 4
        ShearY 0.3 7        TranslateX 0.9 3
        ShearX 0.1 6        Invert 0.6 -
        Solarize 0.7 2      TranslateY 0.6 7
        ShearY 0.8 4        Invert 0.8 -
        ShearX 0.7 9        TranslateY 0.8 3
        ShearY 0.8 5        AutoContrast 0.7 -
        ShearX 0.7 2        Invert 0.1 -
    """),
}


def autoaugment(
    images: UInt8[Tensor, "n 3 s s"], policy: Policy, stream: torch.Generator
) -> UInt8[Tensor, "n 3 s s"]:
    """Return every image after a sub-policy of its own, drawn from the stream alone.

    torchvision's own class draws from the global random state, which is the network's.
    """
    subpolicies, count = POLICIES[policy], len(images)
    chosen = torch.randint(len(subpolicies), (count,), generator=stream).tolist()
    chances = torch.rand(count, 2, generator=stream).tolist()
    signs = (torch.rand(count, 2, generator=stream) <= 0.5).tolist()
    images = images.clone()
    for half in (0, 1):
        groups: dict[tuple[str, float], list[int]] = {}
        for place, number in enumerate(chosen):
            operation = subpolicies[number][half]
            if chances[place][half] <= operation.probability:
                strength = magnitude(operation, images.shape[-1])
                if operation.name not in _UNSIGNED and signs[place][half]:
                    strength = 0.0 - strength
                groups.setdefault((operation.name, strength), []).append(place)
        for (name, strength), places in groups.items():
            images[places] = applied(images[places], name, strength)
    return images


@cache
def magnitude(operation: Operation, size: int) -> float:
    """Return how strong an operation is, in its own unit; 0 for one that has no strength."""
    if operation.level is None:
        return 0.0
    low, high = 0.0, _STRONGEST.get(operation.name, 0.9)
    if operation.name.startswith("Translate"):
        high *= size
    if operation.name == "Solarize":
        low, high = high, low
    if operation.name == "Posterize":
        return float(8 - round(high * operation.level / (BINS - 1)))
    return float(torch.linspace(low, high, BINS)[operation.level])


def applied(
    images: UInt8[Tensor, "n 3 s s"], name: str, strength: float
) -> UInt8[Tensor, "n 3 s s"]:
    """Return the images after one operation."""
    return _operations()[name](images, strength)


@cache
def _operations() -> dict[str, Callable[[Tensor, float], Tensor]]:
    v2 = torchvision("transforms.v2.functional")

    def sheared(x: Tensor, along: float, down: float) -> Tensor:
        shear = [math.degrees(math.atan(along)), math.degrees(math.atan(down))]
        moved: Tensor = v2.affine(
            x, angle=0.0, translate=[0, 0], scale=1.0, shear=shear, center=[0, 0]
        )
        return moved

    def translated(x: Tensor, along: float, down: float) -> Tensor:
        by = [int(along), int(down)]
        moved: Tensor = v2.affine(x, angle=0.0, translate=by, scale=1.0, shear=[0.0, 0.0])
        return moved

    return {
        "ShearX": lambda x, m: sheared(x, m, 0.0),
        "ShearY": lambda x, m: sheared(x, 0.0, m),
        "TranslateX": lambda x, m: translated(x, m, 0.0),
        "TranslateY": lambda x, m: translated(x, 0.0, m),
        "Rotate": lambda x, m: v2.rotate(x, angle=m),
        "Color": lambda x, m: v2.adjust_saturation(x, saturation_factor=1.0 + m),
        "Contrast": lambda x, m: v2.adjust_contrast(x, contrast_factor=1.0 + m),
        "Sharpness": lambda x, m: v2.adjust_sharpness(x, sharpness_factor=1.0 + m),
        "Posterize": lambda x, m: v2.posterize(x, bits=int(m)),
        "Solarize": lambda x, m: v2.solarize(x, threshold=255 * m),
        "AutoContrast": lambda x, _: v2.autocontrast(x),
        "Equalize": lambda x, _: v2.equalize(x),
        "Invert": lambda x, _: v2.invert(x),
    }
