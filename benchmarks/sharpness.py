"""The largest curvature of the training loss at θ, for runs on a benchmark's images.

`python benchmarks/sharpness.py digits-dg-rebuilt data/digits-dg-rebuilt RUN...` prints for every
run the loss of 512 training images of its sources, the length of the gradient, and the largest
eigenvalue of the Hessian by power iteration.
"""

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_model
from torch import Tensor

import cicf
from cicf.core.draw import Samples
from cicf.data.benchmarks import benchmark, load_benchmark
from cicf.data.domains import PARTS, DomainDataset
from cicf.data.loader import Evaluated
from cicf.data.transforms import HALF, Transform
from cicf.models import build_model
from cicf.results import RunFolder

IMAGES, SIZE, TURNS, TOLERANCE = 512, 32, 25, 1e-3


def source_images(data: DomainDataset, target: str, size: int) -> Samples:
    """Return some training images of all domains but one, not augmented."""
    sources = data.without(target)
    assert sources.part is not None
    sources = sources.subset((sources.part == PARTS.index("train")).nonzero()[:, 0])
    chosen = torch.randperm(len(sources), generator=torch.Generator().manual_seed(0))[:IMAGES]
    return Evaluated(sources, Transform(size, *HALF, augment="none")).batch(chosen)


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="a benchmark with given lists, by name")
    parser.add_argument("folder", type=Path, help="where it lies")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    options = parser.parse_args()
    data, _ = load_benchmark(benchmark(options.name), options.folder)
    for run in options.runs:
        config = cicf.RunConfig.model_validate(RunFolder(run).record().config)
        assert config.data.target is not None
        size = config.data.image_size or SIZE
        model = build_model(config.model.name, num_classes=len(data.classes), image_size=size)
        load_model(model.network, run / "weights" / "last-theta.safetensors")
        batch = source_images(data, config.data.target, size)
        parameters = list(model.parameters())
        loss = F.cross_entropy(model(batch.x), batch.y)
        slopes = torch.autograd.grad(loss, parameters, create_graph=True)
        eigenvalue = largest_eigenvalue(slopes, parameters)
        print(
            f"{run.name}: loss {float(loss.detach()):.3f}, gradient {length(slopes):.3f}, "
            f"largest eigenvalue {eigenvalue:.1f}"
        )


if __name__ == "__main__":
    main()
