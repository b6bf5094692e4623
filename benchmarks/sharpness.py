"""The largest curvature of the training loss at θ, for runs on a benchmark's images.

`python benchmarks/sharpness.py digits-dg-rebuilt data/digits-dg-rebuilt RUN...` prints for every
run the loss of 512 training images of its sources, the length of the gradient, and the largest
eigenvalue of the Hessian by power iteration.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from safetensors.torch import load_model
from torch import Tensor

import cicf
from cicf.core.draw import Samples
from cicf.data.benchmarks import benchmark, load_benchmark
from cicf.data.domains import PARTS
from cicf.data.loader import Evaluated
from cicf.data.transforms import HALF, Transform
from cicf.models import SplitModel, build_model
from cicf.results import Record, RunFolder

IMAGES, TURNS, TOLERANCE = 512, 25, 1e-3


class AtTheta(NamedTuple):
    """Holds the network of a run at θ, and the training images of its sources, not augmented."""

    run: Path
    record: Record
    model: SplitModel
    images: Evaluated

    def batch(self, size: int) -> Samples:
        """Return some of the images."""
        order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(0))
        return self.images.batch(order[:size])


def opened(description: str | None) -> Iterator[AtTheta]:
    """Yield the runs on a benchmark's images that the command line names."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("name", help="a benchmark with given lists, by name")
    parser.add_argument("folder", type=Path, help="where it lies")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    options = parser.parse_args()
    data, _ = load_benchmark(benchmark(options.name), options.folder)
    for run in options.runs:
        record = RunFolder(run).record()
        config = cicf.RunConfig.model_validate(record.config)
        assert config.data.target is not None
        sources = data.without(config.data.target)
        assert sources.part is not None
        sources = sources.subset((sources.part == PARTS.index("train")).nonzero()[:, 0])
        size = record.setup.image_size
        model = build_model(
            config.model.name,
            num_classes=len(data.classes),
            image_size=size,
            cut=config.model.cut,
        )
        load_model(model.network, run / "weights" / "last-theta.safetensors")
        yield AtTheta(
            run, record, model, Evaluated(sources, Transform(size, *HALF, augment="none"))
        )


def length(parts: Sequence[Tensor]) -> float:
    """Return the norm of a vector that is in parts."""
    return math.sqrt(sum(float(part.detach().square().sum()) for part in parts))


def largest_eigenvalue(slopes: Sequence[Tensor], parameters: Sequence[Tensor]) -> float:
    """Return the eigenvalue of largest magnitude of the Hessian whose gradient this is."""
    stream = torch.Generator().manual_seed(0)
    along: list[Tensor] = [torch.randn(p.shape, generator=stream) for p in parameters]
    found = 0.0
    for _ in range(TURNS):
        size = length(along)
        along = [part / size for part in along]
        bent = torch.autograd.grad(slopes, parameters, grad_outputs=along, retain_graph=True)
        before, found = found, float(sum((b * a).sum() for b, a in zip(bent, along, strict=True)))
        along = list(bent)
        if abs(found - before) < TOLERANCE * abs(found):
            break
    return found


def main() -> None:
    """Print a line for every run."""
    for each in opened(__doc__):
        batch, parameters = each.batch(IMAGES), list(each.model.parameters())
        loss = F.cross_entropy(each.model(batch.x), batch.y)
        slopes = torch.autograd.grad(loss, parameters, create_graph=True)
        eigenvalue = largest_eigenvalue(slopes, parameters)
        print(
            f"{each.run.name}: loss {float(loss.detach()):.3f}, gradient {length(slopes):.3f}, "
            f"largest eigenvalue {eigenvalue:.1f}"
        )


if __name__ == "__main__":
    main()
