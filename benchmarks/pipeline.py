"""Images per second against torchvision's ImageFolder and DataLoader, and what a step waits.

Both sides read the same files, draw batches at random, augment alike and have as many workers; the
images of this project are decoded once before, which is timed, too. The contestants take turns, and
a ratio is the median over rounds of two rates of the same round. Then networks are trained for some
steps, and the share of the time is taken in which the step waits for its images.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path

import machine
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader

from cicf.config import RunConfig
from cicf.core.torchvision_cpu import torchvision
from cicf.data.domains import DomainDataset
from cicf.data.fingerprint import fingerprint
from cicf.data.folder import load_folder
from cicf.data.loader import Draws, iterate
from cicf.data.samplers import RandomSampler
from cicf.data.sampling import Samplers
from cicf.data.transforms import ENLARGED, IMAGENET, Augment, Transform
from cicf.experiment import recipe
from cicf.experiment.build import make_plan, make_transform
from cicf.experiment.data import Loaded, kept, with_cache
from cicf.results.folder import RunFolder
from cicf.training import Stepped, Trainer

BATCH = 128
TARGETS: dict[Augment, float] = {"basic": 4.0, "autoaugment": 1.5}
"""How many times the images per second of torchvision are wanted."""
LONGEST_WAIT = 0.05
"""The share of its time that a step may wait for images."""
Numbers = dict[str, object]


class Translated:
    """Is Dassl's translation of an image of PIL: enlarged and cut out in half of the images."""

    def __init__(self, size: int) -> None:
        v1 = torchvision("transforms")
        large = round(size * ENLARGED)
        self._plain = v1.Resize((size, size))
        self._moved = v1.Compose([v1.Resize((large, large)), v1.RandomCrop(size)])

    def __call__(self, image: Image.Image) -> Image.Image:
        moves = self._moved if float(torch.rand(())) < 0.5 else self._plain
        found: Image.Image = moves(image)
        return found


def torchvision_batches(root: Path, size: int, augment: Augment, workers: int) -> Iterator[Tensor]:
    """Yield augmented batches without end, as torchvision's own parts make them."""
    v1 = torchvision("transforms")
    policy = [v1.AutoAugment(v1.AutoAugmentPolicy.IMAGENET)] if augment == "autoaugment" else []
    transform = v1.Compose(
        [
            Translated(size),
            v1.RandomHorizontalFlip(),
            *policy,
            v1.ToTensor(),
            v1.Normalize(*IMAGENET),
        ]
    )
    folder = torchvision("datasets").ImageFolder
    data: ConcatDataset[tuple[Tensor, int]] = ConcatDataset(
        [folder(str(each), transform) for each in domains_of(root)]
    )
    loader: DataLoader[tuple[Tensor, int]] = DataLoader(
        data, batch_size=BATCH, shuffle=True, num_workers=workers, drop_last=True
    )
    while True:
        for images, _ in loader:
            yield images


def our_batches(data: DomainDataset, size: int, augment: Augment, workers: int) -> Iterator[Tensor]:
    """Yield augmented batches, as a run of this project draws them."""
    transform = Transform(size, *IMAGENET, augment=augment)
    samplers = Samplers(RandomSampler(len(data), size=BATCH), None)
    draws = Draws(data, transform, samplers, seed=0)
    for draw in iterate(draws, start=0, stop=1 << 30, num_workers=workers):
        yield draw.outer.x


def rate(make: Callable[[], Iterator[Tensor]], count: int) -> float:
    """Return images per second, after the first batches, which include the start of workers."""
    batches = make()
    for _ in islice(batches, 2):
        pass
    began = time.perf_counter()
    for _ in islice(batches, count):
        pass
    seconds = time.perf_counter() - began
    batches.close()  # type: ignore[attr-defined]  # a generator
    return count * BATCH / seconds


def compare(root: Path, data: DomainDataset, *, size: int, rounds: int, count: int) -> Numbers:
    """Return and print the rates of both sides, for each augmentation and number of workers."""
    found: Numbers = {}
    print(f"{'images per second':28} {'torchvision':>12} {'ours':>9} {'ratio':>7} {'wanted':>7}")
    for augment in TARGETS:
        for workers in (0, 2):
            sides: list[Callable[[], Iterator[Tensor]]] = [
                partial(torchvision_batches, root, size, augment, workers),
                partial(our_batches, data, size, augment, workers),
            ]
            rates: list[list[float]] = [[], []]
            for turn in range(rounds):
                for side in (0, 1) if turn % 2 == 0 else (1, 0):
                    rates[side].append(rate(sides[side], count))
            ratios = [b / a for a, b in zip(*rates, strict=True)]
            ratio = statistics.median(ratios)
            theirs, ours = (statistics.median(each) for each in rates)
            name = f"{augment}, {workers} workers"
            is_met = ratio >= TARGETS[augment]
            print(
                f"{name:28} {theirs:12.0f} {ours:9.0f} {ratio:7.1f} {TARGETS[augment]:7.1f} "
                f"{'' if is_met else 'missed'}"
            )
            found[name] = {
                "torchvision": theirs,
                "ours": ours,
                "ratios": ratios,
                "wanted": TARGETS[augment],
                "is_met": is_met,
            }
    return found


def waits(root: Path, data: DomainDataset, cache: Path, *, steps: int) -> Numbers:
    """Return and print which share of its time a step waits for images, in real training."""
    found: Numbers = {}
    print(f"\n{'a step waits for images':28} {'step':>12} {'waits':>9} {'share':>7} {'at most':>7}")
    for name, config in _trainings(root, data).items():
        part = with_cache(data, cache, "data")
        list(_decoded(part, make_transform(config)))
        plan = make_plan(config, Loaded(part), "data")
        # One step more, whose images nothing could be read ahead of.
        with tempfile.TemporaryDirectory() as temporary:
            folder = RunFolder(Path(temporary))
            folder.write_setup(plan.setup)
            trainer = Trainer(plan, folder, config.machine)
            events = trainer.fit()
            stepped = (event for event in events if isinstance(event, Stepped))
            next(stepped)
            before = dict(trainer.seconds)
            for _ in islice(stepped, steps):
                pass
            data_s, step_s = (
                (trainer.seconds[phase] - before[phase]) / steps for phase in ("data", "steps")
            )
            events.close()  # type: ignore[attr-defined]  # a generator
        share = data_s / (data_s + step_s)
        print(
            f"{name:28} {step_s:10.3f} s {1000 * data_s:6.1f} ms {100 * share:5.1f} % "
            f"{100 * LONGEST_WAIT:5.0f} % {'' if share <= LONGEST_WAIT else 'missed'}"
        )
        found[name] = {
            "step_seconds": step_s,
            "wait_seconds": data_s,
            "share": share,
            "wanted": LONGEST_WAIT,
            "is_met": share <= LONGEST_WAIT,
        }
    return found


def _trainings(root: Path, data: DomainDataset) -> dict[str, RunConfig]:
    """Return what is trained: the network of Digits-DG at 32 pixels, ResNet-18 at 64."""
    target = data.domains[-1]
    few = min(256, len(data) // 4)
    digits = {
        "model": {"name": "digits_cnn"},
        "data": {"target": target, "image_size": 32, "normalise": "half", "flips": False},
        "method": {"name": "cicf", "chunk": 32, "keeps_graphs": True},
        "inner": {"size": few},
        "outer": {"size": min(84, few)},
    }
    resnet = {
        "model": {"name": "resnet18", "weights": "none"},
        "data": {"target": target, "image_size": 64},
        "method": {"name": "cicf"},
        "inner": {"size": min(64, few)},
        "outer": {"size": min(42, few)},
    }
    found = {}
    for name, values in (("Digits CNN, 32 px", digits), ("ResNet-18, 64 px", resnet)):
        for augment in TARGETS:
            own = {
                **values,
                "data": {**values["data"], "augment": augment},  # type: ignore[dict-item]
                "clusters": {"per_class": 1},
                "log_every": 1,
                "machine": {"device": "cpu", "checkpoint_every": 1 << 30},
            }
            found[f"{name}, {augment}"] = recipe(str(root), own)
    return found


def _decoded(data: DomainDataset, transform: Transform) -> Iterator[object]:
    augmented = replace(transform, augment="basic")
    yield from kept([(data, (augmented.evaluated_view, *augmented.trained_views))])


def domains_of(root: Path) -> list[Path]:
    """Return the folders of the domains: those with folders of images in them."""
    folders = sorted(each for each in root.iterdir() if each.is_dir())
    return [each for each in folders if any(inner.is_dir() for inner in each.iterdir())]


def synthetic(root: Path, *, per_class: int) -> Path:
    """Write JPEG files of 128x128 in three domains of four classes."""
    stream = torch.Generator().manual_seed(0)
    for domain in ("art", "photo", "sketch"):
        for label in range(4):
            folder = root / domain / f"class{label}"
            folder.mkdir(parents=True)
            for number in range(per_class):
                rough = torch.randint(256, (1, 3, 16, 16), generator=stream).float()
                smooth = torch.nn.functional.interpolate(rough, (128, 128), mode="bicubic")
                pixels = smooth[0].clamp(0, 255).to(torch.uint8).permute(1, 2, 0).numpy()
                Image.fromarray(pixels).save(folder / f"{number:04d}.jpg", quality=90)
    return root


def _images(chosen: Path | None, folder: Path, *, is_quick: bool) -> Path:
    """Return a folder domain/class/image: the one that was named, unpacked, or a made one."""
    if chosen is None:
        return synthetic(folder / "images", per_class=40 if is_quick else 150)
    if chosen.is_dir():
        return chosen
    with zipfile.ZipFile(chosen) as archive:
        archive.extractall(folder / "images")
    (inner,) = (folder / "images").iterdir()
    return inner


def main(words: Sequence[str]) -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds, for a first look")
    parser.add_argument("--json", type=Path, help="the file for all numbers")
    parser.add_argument("--data", type=Path, help="a folder domain/class/image, or a zip of one")
    parser.add_argument("--size", type=int, default=64, help="the side of the images in pixels")
    parser.add_argument("--rounds", type=int, help="turns of each contestant")
    chosen = parser.parse_args(words)
    rounds = chosen.rounds or (3 if chosen.quick else 7)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        root = _images(chosen.data, folder, is_quick=chosen.quick)
        files = load_folder(root, unreadable="not looked for")
        data = with_cache(files, folder / "cache", fingerprint(files))
        began = time.perf_counter()
        list(_decoded(data, Transform(chosen.size, *IMAGENET)))
        seconds = time.perf_counter() - began
        print(f"{len(data)} images, kept at {chosen.size} pixels in {seconds:.1f} s, once")
        count = min(8 if chosen.quick else 16, math.ceil(len(data) / BATCH))
        rates = compare(root, data, size=chosen.size, rounds=rounds, count=count)
        waited = waits(root, files, folder / "cache", steps=2 if chosen.quick else 8)
    print(f"\n{machine.summary()}; load {os.getloadavg()[0]:.1f}")
    if chosen.json is not None:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        found = {
            "machine": machine.describe(),
            "load": os.getloadavg(),
            "images": len(files),
            "size": chosen.size,
            "cache_seconds": seconds,
            "images_per_second": rates,
            "waits": waited,
        }
        chosen.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
