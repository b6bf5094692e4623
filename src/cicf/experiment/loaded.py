"""A trained network, as predictions, pictures and exports need it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float, UInt8
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from cicf.config import RunConfig, make_config
from cicf.core import ConfigError, DataError
from cicf.core.modes import evaluating
from cicf.data.domains import DomainDataset
from cicf.data.images import read_image
from cicf.data.transforms import Transform
from cicf.experiment.build import image_size, make_model, make_transform
from cicf.models import SplitModel
from cicf.results.folder import RunFolder
from cicf.results.record import Scores, Selection, Setup
from cicf.training.evaluate import scores


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """Holds the network of a run, and what is needed to use it."""

    model: SplitModel
    transform: Transform
    setup: Setup
    config: RunConfig
    device: torch.device

    def probabilities(self, images: Sequence[UInt8[Tensor, "3 _ _"]]) -> Float[Tensor, "n classes"]:
        """Return the probability of every class for images of any size."""
        with evaluating(self.model), torch.no_grad():
            rows = [self.model(self.prepared([image])).softmax(dim=1).cpu() for image in images]
        return torch.cat(rows)

    def prepared(self, images: Sequence[UInt8[Tensor, "3 _ _"]]) -> Float[Tensor, "n 3 s s"]:
        """Return the images as the network takes them."""
        return torch.stack([self.transform.prepared(image) for image in images]).to(self.device)

    def scores(self, data: DomainDataset) -> Scores:
        """Return the score on every domain; classes are matched by name."""
        unknown = [name for name in data.classes if name not in self.setup.classes]
        if unknown:
            raise DataError(
                f"class {unknown[0]!r} is none that the network knows; its classes are "
                f"{', '.join(self.setup.classes)}"
            )
        ids = torch.tensor([self.setup.classes.index(name) for name in data.classes])
        renamed = DomainDataset(
            data.images, ids[data.y], data.domain, self.setup.classes, data.domains
        )
        return scores(self.model, renamed, self.transform, device=self.device)


def open_run(path: Path, *, at: Selection = "last", device: str = "auto") -> LoadedRun:
    """Return the deployed network of a run that has ended, or its best one so far."""
    folder = RunFolder(path)
    values = folder.config()
    try:
        make_config(values)
    except ConfigError as error:
        raise DataError(
            f"{folder.config_file} is not the config of a run of this version ({error}); bring it "
            "back, or train again"
        ) from error
    config = make_config({**values, "machine": {"device": device}})
    setup, place = folder.setup(), config.machine.torch_device()
    weights = folder.model_file if at == "last" else folder.weights_file(at, config.method.deploy)
    if not weights.exists():
        raise DataError(
            f"{path} has no {'trained' if at == 'best' else 'finished'} network yet; "
            "finish it with --resume" + ("" if at == "best" else ", or use --checkpoint best")
        )
    model = make_model(config.model, len(setup.classes), image_size(config))
    try:
        model.network.load_state_dict(load_file(weights))
    except (SafetensorError, RuntimeError) as error:
        raise DataError(
            f"{weights} does not hold the weights of {config.model.name} as it is built now "
            f"({' '.join(str(error).split())}); bring back the file, or the code of the network"
        ) from error
    return LoadedRun(model.to(place), make_transform(config), setup, config, place)


def read_images(paths: Sequence[Path]) -> list[UInt8[Tensor, "3 _ _"]]:
    """Return the images of these files."""
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path} is no file; name an image")
    return [read_image(path) for path in paths]
