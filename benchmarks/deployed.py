"""What a run of CICF scores at other places than the θ† that it stored.

The stored θ† is θ − α g†, g† over the training images as they are, while training takes g† of
augmented ones. `python benchmarks/deployed.py data RUN...` prints for every run accuracy on source
validation and on the target with g† of plain and of augmented images, each image three times, for
virtual steps of several lengths. `data` is the folder in which the run's data set lies.
"""

import argparse
import copy
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from cicf.core.draw import Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Evaluated, batches
from cicf.data.transforms import Transform
from cicf.experiment.build import make_split
from cicf.experiment.data import load_data
from cicf.experiment.loaded import LoadedRun, open_run
from cicf.methods.cicf import CicfConfig
from cicf.models import SplitModel
from cicf.results import RunFolder
from cicf.results.record import pooled

CHUNK, TIMES, LENGTHS = 480, 3, (0.0, 0.5, 0.75, 1.0, 1.25)
"""Images at a time; how often each is augmented; virtual steps in units of α."""


def plain(train: DomainDataset, transform: Transform) -> Iterator[Samples]:
    """Yield the training images as the stored θ† sees them."""
    yield from batches(Evaluated(train, transform), size=CHUNK)


def augmented(train: DomainDataset, transform: Transform) -> Iterator[Samples]:
    """Yield the training images as training sees them, each several times."""
    places = torch.arange(len(train)).repeat(TIMES)
    for seed, some in enumerate(places.split(CHUNK)):
        images = transform.training(train, some, seed=seed)
        yield Samples(images, train.y[some], train.domain[some], some)


def moved(theta: SplitModel, dagger: dict[str, Tensor], length: float) -> SplitModel:
    """Return the network on the line from θ to θ†."""
    found = copy.deepcopy(theta)
    found.load_state_dict(
        {
            name: value.lerp(dagger[name], length) if value.is_floating_point() else value
            for name, value in theta.state_dict().items()
        }
    )
    return found


def accuracy(run: LoadedRun, model: SplitModel, data: DomainDataset) -> str:
    """Return the share of these images that the network gets right, in percent."""
    there = LoadedRun(model, run.transform, run.setup, run.config, run.device)
    return f"{pooled(there.scores(data)).percent:.1f}"


def main() -> None:
    """Print a few lines for every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, help="the folder in which the data set lies")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs of CICF")
    options = parser.parse_args()
    for path in options.runs:
        run = open_run(path, device="cpu")
        method = run.config.method
        if not isinstance(method, CicfConfig):
            parser.error(f"{path} is no run of CICF; name one")
        place = run.config.data.model_copy(update={"root": options.root})
        split = make_split(run.config, load_data(place).data)
        assert split.test is not None
        theta = run.model.eval()
        theta.network.load_state_dict(load_file(RunFolder(path).weights_file("last", "theta")))
        step = method.intervention(theta, theta.h)
        print(f"{path.name}: source validation / target")
        for kind in (plain, augmented):
            dagger = step.theta_dagger(kind(split.train, run.transform))
            places = [(length, moved(theta, dagger, length)) for length in LENGTHS]
            shown = (
                f"{length:g} α: {accuracy(run, at, split.validation)} / "
                f"{accuracy(run, at, split.test)}"
                for length, at in places
            )
            print(f"  {kind.__name__:<9}  " + ",  ".join(shown), flush=True)


if __name__ == "__main__":
    main()
