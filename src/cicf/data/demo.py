"""Four domains of digits, made in seconds from what the dependencies bring along.

Handwriting is scikit-learn's 1,797 real digits; each is used in one domain only. `plain` is white
ink on black; `blended` is ink that inverts a patch of a photograph; `printed` is type in many fonts
and colours, with neighbours and blur; `outline` is a thin dark contour on tinted paper.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from PIL import Image, ImageDraw, ImageFilter, ImageFont
from torch import Tensor

from cicf.core.streams import generator
from cicf.data.domains import DomainDataset

SIDE = 32
DOMAINS = ("plain", "blended", "printed", "outline")
CLASSES = tuple(str(digit) for digit in range(10))
PER_DOMAIN = 599
"""Images in each domain: a third of the handwritten digits, and as many printed ones."""
FONTS = (
    *(f"DejaVuSans{style}" for style in ("", "-Bold", "-Oblique", "-BoldOblique")),
    *(f"DejaVuSansMono{style}" for style in ("", "-Bold", "-Oblique")),
    *(f"DejaVuSerif{style}" for style in ("", "-Bold", "-Italic", "-BoldItalic")),
    *(f"STIXGeneral{style}" for style in ("", "Bol", "Italic", "BolIta")),
    *("cmb10", "cmr10", "cmss10", "cmti10", "cmtt10"),
)


def demo_digits(seed: int = 0) -> DomainDataset:
    """Return the four domains, with the mask of the digit for every image.

    A process draws them once; each caller gets a copy to itself.
    """
    drawn = _drawn(seed)
    return drawn.subset(torch.arange(len(drawn)))


@cache
def _drawn(seed: int) -> DomainDataset:
    ink, y = handwritten_digits()
    order = torch.randperm(len(y), generator=generator(seed, "demo", "order"))
    makers: dict[str, Callable[[Tensor, torch.Generator], Tensor]] = {
        "plain": _plain,
        "blended": _blended,
        "outline": _outline,
    }
    parts = {"printed": _printed(generator(seed, "demo", "printed"))}
    for place, (name, make) in enumerate(makers.items()):
        here = order[place * PER_DOMAIN : (place + 1) * PER_DOMAIN]
        images = make(ink[here], generator(seed, "demo", name))
        parts[name] = images, y[here], ink[here] > 0.5
    images, labels, masks = (
        torch.cat(each) for each in zip(*(parts[name] for name in DOMAINS), strict=True)
    )
    pixels = (images.clamp(0, 1) * 255).round().to(torch.uint8)
    domain = torch.arange(len(DOMAINS)).repeat_interleave(PER_DOMAIN)
    return DomainDataset(pixels, labels, domain, CLASSES, DOMAINS, masks)


def handwritten_digits() -> tuple[Float[Tensor, "n 32 32"], Int[Tensor, " n"]]:
    """Return scikit-learn's digits as ink in [0, 1], scaled from 8x8 to 32x32, and their labels."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    ink = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    ink = F.interpolate(ink, (28, 28), mode="bicubic", align_corners=False).clamp(0, 1)
    return F.pad(ink, (2, 2, 2, 2))[:, 0], torch.tensor(digits.target)


def photo_patches(count: int, stream: torch.Generator) -> Float[Tensor, "n 3 32 32"]:
    """Return random patches of scikit-learn's two photographs, in [0, 1]."""
    from sklearn.datasets import load_sample_images

    photos = torch.tensor(np.stack(load_sample_images().images)).permute(0, 3, 1, 2) / 255
    _, _, height, width = photos.shape
    which = torch.randint(len(photos), (count,), generator=stream)
    top = torch.randint(height - SIDE, (count,), generator=stream)
    left = torch.randint(width - SIDE, (count,), generator=stream)
    corners = zip(which.tolist(), top.tolist(), left.tolist(), strict=True)
    return torch.stack([photos[k, :, t : t + SIDE, x : x + SIDE] for k, t, x in corners])


def _plain(ink: Float[Tensor, "n 32 32"], stream: torch.Generator) -> Float[Tensor, "n 3 32 32"]:
    del stream
    return ink[:, None].expand(-1, 3, -1, -1)


def _blended(ink: Float[Tensor, "n 32 32"], stream: torch.Generator) -> Float[Tensor, "n 3 32 32"]:
    """Return |patch − ink|, the recipe of MNIST-M."""
    return (photo_patches(len(ink), stream) - ink[:, None]).abs()


def _outline(ink: Float[Tensor, "n 32 32"], stream: torch.Generator) -> Float[Tensor, "n 3 32 32"]:
    """Return the contour of the ink, dark on paper of a random light tint with grain."""
    body = (ink > 0.4).float()[:, None]
    contour = F.max_pool2d(body, 3, stride=1, padding=1) - body
    tint = 0.7 + 0.3 * torch.rand(len(ink), 3, 1, 1, generator=stream)
    grain = 0.05 * torch.randn(len(ink), 1, SIDE, SIDE, generator=stream)
    pen = 0.25 * torch.rand(len(ink), 3, 1, 1, generator=stream)
    return (tint + grain) * (1 - contour) + pen * contour


def _printed(
    stream: torch.Generator,
) -> tuple[Float[Tensor, "n 3 32 32"], Int[Tensor, " n"], Bool[Tensor, "n 32 32"]]:
    y = torch.arange(PER_DOMAIN) % 10
    drawn = [_print(int(digit), stream) for digit in y]
    images, masks = (torch.stack(parts) for parts in zip(*drawn, strict=True))
    return images, y, masks


def _print(
    digit: int, stream: torch.Generator
) -> tuple[Float[Tensor, "3 32 32"], Bool[Tensor, "32 32"]]:
    """Return a digit in a random font between two neighbours, blurred, and its own mask."""

    def uniform(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=stream))

    def whole(count: int) -> int:
        return int(torch.randint(count, (), generator=stream))

    folder = _fonts()
    font = ImageFont.truetype(folder / f"{FONTS[whole(len(FONTS))]}.ttf", 22 + whole(7))
    paper, ink = _apart(stream)
    centre = SIDE / 2 + uniform(-2.0, 2.0), SIDE / 2 + uniform(-2.0, 2.0)
    image = Image.new("RGB", (SIDE, SIDE), paper)
    own = Image.new("L", (SIDE, SIDE), 0)
    draw = ImageDraw.Draw(image)
    gap = uniform(17.0, 21.0)
    for side in (-1, 1):
        draw.text(
            (centre[0] + side * gap, centre[1]), str(whole(10)), font=font, fill=ink, anchor="mm"
        )
    draw.text(centre, str(digit), font=font, fill=ink, anchor="mm")
    ImageDraw.Draw(own).text(centre, str(digit), font=font, fill=255, anchor="mm")
    image = image.filter(ImageFilter.GaussianBlur(uniform(0.0, 1.2)))
    pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255
    noisy = pixels + 0.04 * torch.randn(pixels.shape, generator=stream)
    return noisy, torch.from_numpy(np.array(own)) > 127


def _apart(stream: torch.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two random colours that can be told apart."""
    while True:
        colours = torch.randint(256, (2, 3), generator=stream)
        if int((colours[0] - colours[1]).abs().sum()) > 200:
            first, second = (tuple(colour) for colour in colours.tolist())
            return first, second


def _fonts() -> Path:
    import matplotlib as mpl

    return Path(mpl.get_data_path()) / "fonts" / "ttf"
