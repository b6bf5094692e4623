"""What keeps the virtual step from overshooting: the Digits CNN from scratch, α = 0.5, β = 0.1.

Trains on three domains of an archive `digits_dg/<domain>/<train|val>/<class>/*.jpg`, once for each
safeguard, and prints the accuracy at θ and θ† on source validation, and on the target at the end.
"""

import argparse
import io
import math
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.utils.data import DataLoader, TensorDataset

import cicf
from cicf.data import pixel_features
from cicf.models import DigitsCnn

ALPHA, BETA, INNER, OUTER, CLIP, CHUNK = 0.5, 0.1, 256, 84, 2.0, 32
DOMAINS = ("mnist", "mnist_m", "svhn", "syn")
Pair = tuple[Tensor, Tensor]
Rule = Callable[[cicf.Intervention, Pair, int], float]


def load(archive: Path, domains: tuple[str, ...], *parts: str) -> Pair:
    """Return the images of some domains and parts, scaled to [-1, 1], and their labels."""
    images, labels = [], []
    with zipfile.ZipFile(archive) as files:
        for name in sorted(files.namelist()):
            _, domain, part, label, file = (*name.split("/"), "", "", "", "")[:5]
            if domain in domains and part in parts and file:
                images.append(np.array(Image.open(io.BytesIO(files.read(name))).convert("RGB")))
                labels.append(int(label))
    pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
    return (pixels / 255 - 0.5) / 0.5, torch.tensor(labels)


def accuracy(model: nn.Module, data: Pair) -> float:
    """Return the share of images that are classified rightly, in percent."""
    with torch.no_grad():
        hits = [model(x).argmax(1) == y for x, y in DataLoader(TensorDataset(*data), 512)]
    return 100 * float(torch.cat(hits).double().mean())


def constant(step: cicf.Intervention, inner: Pair, number: int) -> float:
    """Return α as it is."""
    del step, inner, number
    return ALPHA


def ramp(steps: int) -> Rule:
    """Return α that grows linearly from 0 over the first steps."""

    def rule(step: cicf.Intervention, inner: Pair, number: int) -> float:
        del step, inner
        return ALPHA * min(1.0, (number + 1) / steps)

    return rule


def backtracking(step: cicf.Intervention, inner: Pair, number: int) -> float:
    """Return the first of α, α/2, α/4, … that lowers the inner loss."""
    del number
    loss, alpha = step.inner_losses([inner]), ALPHA
    while alpha > 1e-3 and not loss(alpha) < loss(0.0):
        alpha /= 2
    return alpha


def armijo(step: cicf.Intervention, inner: Pair, number: int) -> float:
    """Return the first of α, α/2, α/4, … that lowers the inner loss by half of what g† promises.

    On a parabola of curvature λ that is αλ ≤ 1: the virtual step does not pass the minimum.
    """
    del number
    loss, alpha, tiny = step.inner_losses([inner]), ALPHA, 1e-4
    start = loss(0.0)
    slope = (start - loss(tiny)) / tiny
    while alpha > 1e-3 and not start - loss(alpha) >= 0.5 * alpha * slope:
        alpha /= 2
    return alpha


SAFEGUARDS: dict[str, tuple[Rule, float, float]] = {
    # name: the rule for α, the bound on ‖α g†‖ / ‖θ‖, the norm at which the gradient is clipped
    "none": (constant, math.inf, CLIP),
    "none, not clipped": (constant, math.inf, math.inf),
    "bound 0.05": (constant, 0.05, CLIP),
    "backtracking": (backtracking, math.inf, CLIP),
    "Armijo 0.5": (armijo, math.inf, CLIP),
    "ramp 171": (ramp(171), math.inf, CLIP),
    "bound 0.02": (constant, 0.02, CLIP),
    "bound 0.02, not clipped": (constant, 0.02, math.inf),
    "bound 0.01": (constant, 0.01, CLIP),
    "bound 0.1": (constant, 0.1, CLIP),
}


def train(name: str, sources: Pair, *, steps: int, every: int, report: Callable[..., None]) -> None:
    """Train once; `report` is called with θ and θ† as networks, every so many steps."""
    rule, bound, clip = SAFEGUARDS[name]
    torch.manual_seed(0)
    x, y = sources
    strata = cicf.cluster_by_class(pixel_features(x), y, seed=0)
    outer = cicf.RandomSampler(len(y), size=OUTER, seed=0)
    inner = cicf.StratifiedSampler(strata, size=INNER, seed=0)
    model, moved = DigitsCnn(10), DigitsCnn(10)
    step = cicf.Intervention(
        model,
        alpha=ALPHA,
        chunk=CHUNK,
        keeps_graphs=True,
        max_step_ratio=bound,
        measures_before=False,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=BETA, weight_decay=5e-4)
    alphas = []
    for number in range(steps):
        a, b = inner.batch(number), outer.batch(number)
        step.alpha = rule(step, (x[a], y[a]), number)
        optimizer.zero_grad()
        terms = step.backward((x[a], y[a]), (x[b], y[b]))
        clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        alphas.append(terms.alpha)
        if (number + 1) % every == 0:
            moved.load_state_dict(step.theta_dagger(DataLoader(TensorDataset(x, y), 512)))
            report(number + 1, model, moved, alphas, terms)


def main() -> None:
    """Train with each safeguard that was asked for, and print a line per evaluation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("--target", default="mnist_m", choices=DOMAINS)
    parser.add_argument("--steps", type=int, default=342)
    parser.add_argument("--every", type=int, default=114)
    parser.add_argument("--only", nargs="+", default=list(SAFEGUARDS), choices=list(SAFEGUARDS))
    options = parser.parse_args()
    names = tuple(name for name in DOMAINS if name != options.target)
    sources, validation = (load(options.archive, names, part) for part in ("train", "val"))
    target = load(options.archive, (options.target,), "train", "val")
    for name in options.only:
        began = time.perf_counter()

        def report(
            number: int,
            theta: nn.Module,
            dagger: nn.Module,
            alphas: list[float],
            terms: cicf.Terms,
            *,
            name: str = name,
            began: float = began,
        ) -> None:
            scores = [f"{accuracy(model, validation):.1f}" for model in (theta, dagger)]
            if number + options.every > options.steps:
                scores += [f"target {accuracy(model, target):.1f}" for model in (theta, dagger)]
            print(
                f"{name}: step {number}: theta, theta_dagger {', '.join(scores)}; alpha "
                f"{min(alphas):.3f} to {max(alphas):.3f}, last {alphas[-1]:.3f}; inner loss "
                f"{float(terms.inner_loss):.2f}, outer {float(terms.outer_loss):.2f}; "
                f"{time.perf_counter() - began:.0f} s",
                flush=True,
            )

        train(name, sources, steps=options.steps, every=options.every, report=report)


if __name__ == "__main__":
    main()
