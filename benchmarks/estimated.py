"""What the error of g† adds to the loss that CICF minimises, for runs on a benchmark's images.

With g† of all training images L_CICF is the training loss at θ†, and ERM minimises the training
loss, too. What is CICF's own is what a batch adds to it: the mean of L(θ − α ĝ) over batches, minus
L(θ − α g†). `python benchmarks/estimated.py digits-dg-rebuilt data/digits-dg-rebuilt RUN...` prints
it for clustered and for random batches of the run's M, over training images of the sources, not
augmented, at the θ in which the run has ended.
"""

import argparse
from collections.abc import Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_model
from sharpness import SIZE

import cicf
from cicf.core.draw import Samples
from cicf.data.benchmarks import benchmark, load_benchmark
from cicf.data.clustering import cluster_dataset
from cicf.data.domains import PARTS, DomainDataset
from cicf.data.loader import Evaluated, batches
from cicf.data.samplers import RandomSampler, StratifiedSampler
from cicf.data.transforms import HALF, Transform
from cicf.models import SplitModel, build_model
from cicf.results import RunFolder

CHUNK, DRAWS, JUDGED = 480, 50, 1440
"""Images at a time; batches that are drawn; images on which θ − α ĝ is judged."""


class Judge:
    """Holds a network at θ, and the loss of some images after virtual steps from there."""

    def __init__(self, model: SplitModel, alpha: float, judged: list[Samples]) -> None:
        self._moved, self._judged = deepcopy(model), judged
        self._step = cicf.Intervention(model, alpha=alpha, h=model.h)

    def loss(self, inner: Iterable[Samples]) -> float:
        """Return the loss at θ − α ĝ, with the gradient of these images."""
        state = self._step.theta_dagger((each.x, each.y) for each in inner)
        self._moved.load_state_dict(state)
        with torch.no_grad():
            sums = [
                F.cross_entropy(self._moved(each.x), each.y, reduction="sum")
                for each in self._judged
            ]
        return float(sum(sums)) / sum(len(each.y) for each in self._judged)


def report(run: Path, data: DomainDataset) -> None:
    """Print what batches of a run's size add to the loss at its θ†."""
    config: dict[str, Any] = RunFolder(run).record().config
    sources = data.without(config["data"]["target"])
    assert sources.part is not None
    sources = sources.subset((sources.part == PARTS.index("train")).nonzero()[:, 0])
    size, alpha = config["data"]["image_size"] or SIZE, config["method"]["alpha"]
    m = config["inner"]["size"]
    model = build_model(
        config["model"]["name"],
        num_classes=len(data.classes),
        image_size=size,
        cut=config["model"]["cut"],
    )
    load_model(model.network, run / "weights" / "last-theta.safetensors")
    images = Evaluated(sources, Transform(size, *HALF, augment="none"))
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(0))
    judge = Judge(model, alpha, [images.batch(part) for part in order[:JUDGED].split(CHUNK)])
    whole = judge.loss(batches(images, size=CHUNK))
    print(f"{run.name}: α = {alpha}, M = {m}, L(θ − α g†) = {whole:.4f}")
    strata = cluster_dataset(images)
    for sampler in (StratifiedSampler(strata, size=m), RandomSampler(len(images), size=m)):
        found = torch.tensor([judge.loss([images.batch(sampler.batch(i))]) for i in range(DRAWS)])
        added = found - whole
        error = float(added.std()) / DRAWS**0.5
        print(f"  {type(sampler).__name__:<18} adds {float(added.mean()):+.4f} ± {error:.4f}")


def main() -> None:
    """Print three lines for every run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a benchmark with given lists, by name")
    parser.add_argument("folder", type=Path, help="where it lies")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    options = parser.parse_args()
    data, _ = load_benchmark(benchmark(options.name), options.folder)
    for run in options.runs:
        report(run, data)


if __name__ == "__main__":
    main()
