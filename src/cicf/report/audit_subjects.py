"""The images that an audit changes: a run's own target, a data set, or a folder without labels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int, UInt8
from torch import Tensor

from cicf.config import DataConfig
from cicf.core import ConfigError, DataError
from cicf.core.streams import generator
from cicf.data.domains import DomainDataset
from cicf.data.fingerprint import fingerprint
from cicf.data.images import ImageFiles, read_image
from cicf.data.tree import ENDINGS, walk
from cicf.experiment import LoadedRun
from cicf.experiment.build import make_split
from cicf.experiment.data import load_data


class Subject(NamedTuple):
    """Is one image, with its mask and the name of its class where these are known."""

    name: str
    image: UInt8[Tensor, "3 _ _"]
    mask: Bool[Tensor, "_ _"] | None
    label: str | None


@dataclass(frozen=True, eq=False)
class Subjects:
    """Holds images by name, each read when it is asked for."""

    names: tuple[str, ...]
    images: UInt8[Tensor, "n 3 _ _"] | ImageFiles
    labels: tuple[str, ...] | None = None
    masks: Bool[Tensor, "n _ _"] | tuple[Path, ...] | None = None
    """Which pixels are the object: in memory, or files of the same size as the images."""

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, place: int) -> Subject:
        image = self.images[place]
        label = None if self.labels is None else self.labels[place]
        return Subject(self.names[place], image, self._mask(place, image), label)

    def _mask(self, place: int, image: UInt8[Tensor, "3 h w"]) -> Bool[Tensor, "h w"] | None:
        if self.masks is None:
            return None
        if isinstance(self.masks, Tensor):
            return self.masks[place]
        return _read_mask(self.masks[place], image)

    def some(self, most: int) -> "Subjects":
        """Return at most so many of them, drawn at random but always the same, in their order."""
        if len(self) <= most:
            return self
        drawn = torch.randperm(len(self), generator=generator(0, "audit", "images"))[:most]
        return self._taken(drawn.sort().values)

    def with_masks(self, folder: Path) -> "Subjects":
        """Return the same images with the masks of a folder, PNG files of the same names."""
        if not isinstance(self.images, ImageFiles):
            raise ConfigError(f"--masks {folder} belongs to files; these images bring their own")
        if not folder.is_dir():
            raise DataError(f"--masks {folder} is no folder; name one with a PNG for every image")
        found = tuple(_mask_of(path, folder) for path in self.images.paths)
        path, uses = Counter(found).most_common(1)[0]
        if uses > 1:
            raise DataError(
                f"{path} would be the mask of {uses} images of that name; put masks into folders "
                "as the images are, class/image.png"
            )
        return Subjects(self.names, self.images, self.labels, found)

    def _taken(self, places: Int[Tensor, " m"]) -> "Subjects":
        images, masks, which = self.images, self.masks, places.tolist()
        if isinstance(masks, Tensor):
            masks = masks[places]
        elif masks is not None:
            masks = tuple(masks[i] for i in which)
        return Subjects(
            tuple(self.names[i] for i in which),
            images.take(places) if isinstance(images, ImageFiles) else images[places],
            None if self.labels is None else tuple(self.labels[i] for i in which),
            masks,
        )


def labelled(data: DomainDataset) -> Subjects:
    """Return the images of a data set, by file name or by domain and number."""
    if isinstance(data.images, ImageFiles):
        names = tuple("/".join(path.parts[-3:]) for path in data.images.paths)
    else:
        names = tuple(f"{data.domains[d]}/{i}" for i, d in enumerate(data.domain.tolist()))
    labels = tuple(data.classes[y] for y in data.y.tolist())
    return Subjects(names, data.images, labels, data.masks)


def named_data(config: DataConfig) -> Subjects:
    """Return the images of a data set that a user names; of one domain if it is the target."""
    found = load_data(config, is_for_training=False).data
    return labelled(found if config.target is None else found.of(config.target))


def own_images(runs: Sequence[LoadedRun], root: Path | None) -> Subjects:
    """Return what the runs were tested on, or where nothing was, what they were validated with."""
    first = runs[0]
    tested = first.setup.protocol.tested
    for run in runs[1:]:
        if (run.setup.fingerprint, run.setup.protocol.tested) != (first.setup.fingerprint, tested):
            raise ConfigError(
                "the runs were tested on different images; name those to audit with --data or "
                "--images"
            )
    config = first.config.model_copy(
        update={"data": first.config.data.model_copy(update={"root": root})}
    )
    data = load_data(config.data, checks_images=False).data
    if fingerprint(data) != first.setup.fingerprint:
        raise DataError(
            f"the images of {config.data.name!r} are no longer those that the run was trained on; "
            "bring them back, or name some with --data or --images"
        )
    split = make_split(config, data)
    return labelled(split.validation if split.test is None else split.test)


def files(paths: Sequence[Path]) -> Subjects:
    """Return the images in these files and below these folders, whose labels are not known."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise DataError(f"--images {path} does not exist; name a folder or a file")
        found += walk(path).images if path.is_dir() else [path]
    if not found:
        raise DataError(
            f"--images {paths[0]} holds no images; endings that count are {', '.join(ENDINGS)}"
        )
    return Subjects(tuple(map(str, found)), ImageFiles(tuple(found)))


def _mask_of(image: Path, folder: Path) -> Path:
    """Return the mask of an image: of the same name, in the same folders where there are some."""
    for depth in (3, 2, 1):
        path = folder.joinpath(*image.parts[-depth:]).with_suffix(".png")
        if path.is_file():
            return path
    raise DataError(
        f"--masks {folder} has no {image.stem}.png for {image}; add it, or leave --masks out"
    )


def _read_mask(path: Path, image: UInt8[Tensor, "3 h w"]) -> Bool[Tensor, "h w"]:
    """Return where a mask is bright, whether it counts to 1 or to 255."""
    bright = read_image(path).amax(dim=0)
    if bright.shape != image.shape[1:]:
        sizes = [f"{width} x {height}" for height, width in (bright.shape, image.shape[1:])]
        raise DataError(
            f"the mask {path} has {sizes[0]} pixels and its image {sizes[1]}; make them alike"
        )
    mask = bright > int(bright.max()) / 2
    if not bool(mask.any()) or bool(mask.all()):
        raise DataError(
            f"the mask {path} is of one colour; make the object white and the rest black"
        )
    return mask
