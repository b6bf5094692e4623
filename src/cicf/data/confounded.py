"""Digits with a known confounder, so that the causal answer is known.

The cause of the label is the ink. The confounder is what lies behind it, one of ten: in training it
follows the label in a share `strength` of the images, in a test it may follow another rule.

As a data set to train on, these are three domains in which it follows the label more or less often,
and three of other digits to test on: as in training, drawn at random, and the other way round.
"""

import colorsys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.streams import generator
from cicf.data.demo import CLASSES, SIDE, handwritten_digits
from cicf.data.domains import PARTS, DomainDataset

Kind = Literal["colour", "background"]
Relation = Literal["tied", "reversed", "independent"]
CONFOUNDED = "confounded"
"""The name of the data set."""
STRENGTH = 0.9
"""The share of training images whose confounder follows the label, unless another is asked for."""
SPREAD = 0.1
"""By how much the share of the weakest and of the strongest domain differ from that."""
SOURCES = ("weak", "middle", "strong")
TARGETS: tuple[Relation, ...] = ("tied", "independent", "reversed")


class Rendered(NamedTuple):
    """Holds images with their labels and masks."""

    images: UInt8[Tensor, "n 3 32 32"]
    y: Int[Tensor, " n"]
    masks: Bool[Tensor, "n 32 32"]


@dataclass(frozen=True, eq=False)
class Confounded:
    """Holds the causes of every image, ink and confounder, from which the images are drawn.

    Each can be set while the other stays, which is what do(·) means here. An image's noise is its
    own and stays with it, so that two renderings differ by what was set and by nothing else.
    """

    ink: Float[Tensor, "n 32 32"]
    y: Int[Tensor, " n"]
    confounder: Int[Tensor, " n"]
    kind: Kind
    seed: int

    def do_confounder(self, confounder: Int[Tensor, " n"]) -> "Confounded":
        """Return the same digits before other backgrounds; their labels stay."""
        return replace(self, confounder=confounder)

    def do_cause(self, ink: Float[Tensor, "n 32 32"], y: Int[Tensor, " n"]) -> "Confounded":
        """Return other digits, with their labels, before the same backgrounds."""
        return replace(self, ink=ink, y=y)

    def dataset(self) -> DomainDataset:
        """Return the images as one domain named after the kind, with the mask of the ink."""
        images, y, masks = self.rendered()
        return DomainDataset(images, y, torch.zeros_like(y), CLASSES, (self.kind,), masks)

    def rendered(self) -> Rendered:
        """Return the images, their labels, and the mask of the ink."""
        stream = generator(self.seed, "confounded", "noise")
        behind = _colours if self.kind == "colour" else _backgrounds
        paper = behind(self.confounder, stream)
        noise = 0.03 * torch.randn(len(self.y), 1, SIDE, SIDE, generator=stream)
        ink = self.ink[:, None]
        pixels = ((paper * (1 - ink) + ink + noise).clamp(0, 1) * 255).round().to(torch.uint8)
        return Rendered(pixels, self.y, self.ink > 0.5)


def confounded_digits(
    *,
    strength: float,
    kind: Kind = "colour",
    relation: Relation = "tied",
    part: Literal["train", "test"] = "train",
    seed: int = 0,
) -> Confounded:
    """Return two thirds of the handwritten digits to train, or the others to test.

    In a share `strength` of the images the confounder is the label (`tied`) or its opposite, 9 − y
    (`reversed`); in the rest, and in all when `independent`, it is drawn at random.
    """
    _check(strength, kind, relation, part)
    ink, y = handwritten_digits()
    order = torch.randperm(len(y), generator=generator(seed, "confounded", "order"))
    border = 2 * len(y) // 3
    here = order[:border] if part == "train" else order[border:]
    ink, y = ink[here], y[here]
    stream = generator(seed, "confounded", part, relation)
    follows = torch.rand(len(y), generator=stream) < strength
    at_random = torch.randint(10, y.shape, generator=stream)
    rule = {"tied": y, "reversed": 9 - y, "independent": at_random}[relation]
    return Confounded(ink, y, torch.where(follows, rule, at_random), kind, seed)


def confounded_domains(
    *, strength: float = STRENGTH, kind: Kind = "colour", seed: int = 0
) -> DomainDataset:
    """Return the data set: SOURCES to train on, and TARGETS, which a split gives to the test.

    Over the sources together the share is `strength`; among them it differs by SPREAD, or less near
    0 and 1. No digit is in two sources; the targets show the same digits, and `reversed` is as
    often reversed as `tied` is tied.
    """
    spread = min(SPREAD, strength, 1 - strength)
    parts = []
    for place, share in enumerate((strength - spread, strength, strength + spread)):
        # Rounding may leave a share a hair outside of [0, 1].
        tied = confounded_digits(strength=min(max(share, 0.0), 1.0), kind=kind, seed=seed)
        own = torch.arange(place, len(tied.y), len(SOURCES))
        parts.append(Rendered(*(each[own] for each in tied.rendered())))
    for relation in TARGETS:
        drawn = confounded_digits(
            strength=strength, kind=kind, relation=relation, part="test", seed=seed
        )
        parts.append(drawn.rendered())
    return _joined(parts)


def _joined(parts: Sequence[Rendered]) -> DomainDataset:
    """Return the domains as one data set, of which the targets are there to test on alone."""
    images, y, masks = (torch.cat(each) for each in zip(*parts, strict=True))
    sizes = torch.tensor([len(part.y) for part in parts])
    use = torch.tensor([-1] * len(SOURCES) + [PARTS.index("test")] * len(TARGETS))
    return DomainDataset(
        images,
        y,
        torch.arange(len(parts)).repeat_interleave(sizes),
        CLASSES,
        (*SOURCES, *TARGETS),
        masks,
        use.repeat_interleave(sizes),
    )


def _colours(confounder: Int[Tensor, " n"], stream: torch.Generator) -> Float[Tensor, "n 3 32 32"]:
    """Return paper in one of ten hues, a little lighter or darker for each image."""
    hues = torch.tensor([colorsys.hsv_to_rgb(k / 10, 0.9, 0.7) for k in range(10)])
    light = 0.7 + 0.6 * torch.rand(len(confounder), 1, 1, 1, generator=stream)
    return hues[confounder][:, :, None, None].expand(-1, -1, SIDE, SIDE) * light


def _backgrounds(
    confounder: Int[Tensor, " n"], stream: torch.Generator
) -> Float[Tensor, "n 3 32 32"]:
    """Return patches of two photographs, cut from one of ten strips."""
    from sklearn.datasets import load_sample_images

    photos = (
        torch.tensor(np.concatenate(load_sample_images().images, axis=1)).permute(2, 0, 1) / 255
    )
    strip = photos.shape[2] // 10
    top = torch.randint(photos.shape[1] - SIDE, confounder.shape, generator=stream)
    left = confounder * strip + torch.randint(strip - SIDE, confounder.shape, generator=stream)
    corners = zip(top.tolist(), left.tolist(), strict=True)
    return 0.7 * torch.stack([photos[:, t : t + SIDE, x : x + SIDE] for t, x in corners])


def _check(strength: float, kind: str, relation: str, part: str) -> None:
    if not 0 <= strength <= 1:
        raise ConfigError(f"strength={strength} must be a share, from 0 (none) to 1 (always)")
    for name, value, known in (
        ("kind", kind, ("colour", "background")),
        ("relation", relation, ("tied", "reversed", "independent")),
        ("part", part, ("train", "test")),
    ):
        if value not in known:
            raise ConfigError(f"{name}={value!r} must be one of {', '.join(map(repr, known))}")
