"""A small network that was never trained, as if it were of a run, and images with masks."""

import torch
from tests.support.runs import tiny_net

from cicf.config import make_config
from cicf.data.domains import DomainDataset
from cicf.data.transforms import HALF, Transform
from cicf.experiment import LoadedRun
from cicf.experiment.recipes import recipe
from cicf.models import SplitModel
from cicf.results.record import Protocol, Setup

CLASSES = ("cat", "dog", "owl")


def loaded_run(
    *,
    seed: int = 0,
    size: int = 16,
    classes: tuple[str, ...] = CLASSES,
    target: str = "sketch",
    fingerprint: str = "same",
) -> LoadedRun:
    """Return a network with random weights, with the setup of a run that holds a domain out."""
    torch.manual_seed(seed)
    network = tiny_net(len(classes))
    protocol = Protocol(
        name="leave-one-domain-out", split="seed", part="all images", tested=(target,)
    )
    setup = Setup(
        classes=classes,
        sources={"art": 9},
        validation={"art": 3},
        protocol=protocol,
        fingerprint=fingerprint,
        inner_size=None,
        outer_size=4,
        steps_per_epoch=1,
        cut="2",
        image_size=size,
        mean=HALF[0],
        std=HALF[1],
        notes=(),
        versions={},
    )
    config = make_config(recipe("demo", {"method": {"name": "erm"}}).model_dump())
    model = SplitModel(network, cut="2", before=("0", "1", "2"))
    return LoadedRun(model, Transform(size, *HALF), setup, config, torch.device("cpu"))


def masked_images(per_domain: int = 12, *, height: int = 16, width: int = 16) -> DomainDataset:
    """Return noise of two domains with a bright square, and masks that are the square."""
    stream = torch.Generator().manual_seed(0)
    count = 2 * per_domain
    images = torch.randint(100, (count, 3, height, width), generator=stream, dtype=torch.uint8)
    masks = torch.zeros(count, height, width, dtype=torch.bool)
    for place, (top, left) in enumerate(torch.randint(8, (count, 2), generator=stream).tolist()):
        masks[place, top : top + 6, left : left + 6] = True
    images[masks[:, None].expand_as(images)] = 255
    y = torch.arange(count) % 3
    domain = torch.arange(2).repeat_interleave(per_domain)
    return DomainDataset(images, y, domain, CLASSES, ("art", "sketch"), masks)
