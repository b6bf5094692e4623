"""What the options cost and spoil that trade exactness for time: curvature, order 1, bfloat16.

The Digits CNN steps on the embedded digits after a little plain training. Time is the median over
rounds of ratios to the exact step of the same round; error and cosine compare the gradients.
"""

import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from contest import parser, write_json
from torch import Tensor, nn

import cicf
from cicf.data.clusters import cluster_by_class
from cicf.data.demo import demo_digits
from cicf.data.features import pixel_features
from cicf.models.digits_cnn import DigitsCnn

M, M_OUTER, ALPHA, K = 256, 84, 0.1, 3
Batch = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Options:
    """Holds what a contestant differs in from the exact step."""

    order: Literal[1, 2] = 2
    curvature: float = 1.0
    has_strata: bool = False
    precision: Callable[[], AbstractContextManager[object]] = nullcontext


CONTESTANTS = {
    "exact": Options(),
    "curvature 1/2, strata": Options(curvature=1 / 2, has_strata=True),
    "curvature 1/4, strata": Options(curvature=1 / 4, has_strata=True),
    "curvature 1/8, strata": Options(curvature=1 / 8, has_strata=True),
    "curvature 1/4": Options(curvature=1 / 4),
    "order 1": Options(order=1),
    "bfloat16": Options(precision=partial(torch.autocast, "cpu", dtype=torch.bfloat16)),
}


@dataclass(frozen=True)
class Data:
    """Holds images with their labels and clusters."""

    x: Tensor
    y: Tensor
    cluster: Tensor

    def batch(self, size: int, stream: torch.Generator) -> tuple[Batch, Tensor]:
        """Return a random batch, and the clusters of its samples."""
        places = torch.randperm(len(self.y), generator=stream)[:size]
        return (self.x[places], self.y[places]), self.cluster[places]


def load() -> Data:
    """Return the embedded digits, clustered on their pixels."""
    found = demo_digits()
    assert isinstance(found.images, Tensor)
    x = F.interpolate(found.images / 127.5 - 1, (32, 32), mode="bilinear")
    strata = cluster_by_class(pixel_features(x), found.y, clusters_per_class=K)
    return Data(x, found.y, strata.cluster)


def trained(data: Data, steps: int, stream: torch.Generator) -> nn.Module:
    """Return a network that has begun to learn."""
    torch.manual_seed(0)
    model = DigitsCnn(10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        (x, y), _ = data.batch(M_OUTER, stream)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def stepped(
    model: nn.Module, options: Options, inner: Batch, outer: Batch, cluster: Tensor
) -> tuple[Tensor, float]:
    """Return the gradient of a step, and its seconds."""
    step = cicf.Intervention(
        model,
        alpha=ALPHA,
        chunk=None,
        order=options.order,
        curvature=options.curvature,
        measures_before=False,
    )
    model.zero_grad(set_to_none=True)
    began = time.perf_counter()
    with options.precision():
        step.backward(inner, outer, strata=cluster if options.has_strata else None)
    seconds = time.perf_counter() - began
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    return gradient, seconds


def main() -> None:
    """Print the table, and write it if asked to."""
    taken = parser(__doc__).parse_args()
    rounds = 3 if taken.quick else 15
    stream = torch.Generator().manual_seed(0)
    data = load()
    model = trained(data, 100, stream)
    seen: dict[str, list[tuple[float, float, float]]] = {name: [] for name in CONTESTANTS}
    for turn in range(rounds + 1):
        inner, cluster = data.batch(M, stream)
        outer, _ = data.batch(M_OUTER, stream)
        exact, base = stepped(model, CONTESTANTS["exact"], inner, outer, cluster)
        for name, options in CONTESTANTS.items():
            found, seconds = stepped(model, options, inner, outer, cluster)
            error = float((found - exact).norm() / exact.norm())
            cosine = float(F.cosine_similarity(found, exact, dim=0))
            if turn > 0:
                seen[name].append((seconds / base, error, cosine))
    table = {
        name: [statistics.median(column) for column in zip(*rows, strict=True)]
        for name, rows in seen.items()
    }
    print(f"Digits CNN on the embedded digits, M = {M}, M^l = {M_OUTER}, α = {ALPHA}")
    print(f"  {'':<24}{'time':>8}{'error':>10}{'cosine':>10}")
    for name, (ratio, error, cosine) in table.items():
        print(f"  {name:<24}{ratio:>8.2f}{error:>10.3f}{cosine:>10.4f}")
    write_json(taken.json, {"rounds": rounds, "ratio, error, cosine": table})


if __name__ == "__main__":
    main()
