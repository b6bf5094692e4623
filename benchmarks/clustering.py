"""Time and quality of clustering against ten restarts of k-means on everything in float64.

Features of 512 dimensions in 7 classes, N from 1,000 to 100,000; both take turns. Inertia is that
of the clusters found, computed alike for both. At the end, the share of clustering in a training
of 60 epochs; that one is extrapolated from the time of a step.
"""

import argparse
import math
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import machine
import numpy as np
import torch
from contest import Place, race, workers, write_json
from networks import SETTINGS
from sklearn.cluster import KMeans
from torch import Tensor
from torch.utils.data import TensorDataset

import cicf
from cicf.data import dataset_features
from cicf.data.strata import Strata, strata_of

NUM_CLASSES, DIMENSIONS, CLUSTERS, MODES = 7, 512, 3, 8
NUMBERS = (1_000, 3_000, 10_000, 30_000, 100_000)
DIGITS, EPOCHS, MOST_SHARE = 14_400, 60, 0.01
"""Training images of three domains of Digits-DG, and the share of time that clustering may take."""
Cluster = Callable[[Tensor, Tensor], Strata]


def features(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return what a network might: a falling spectrum, overlapping modes in each class, a ReLU."""
    stream = torch.Generator().manual_seed(seed)
    y = torch.randint(NUM_CLASSES, (n,), generator=stream)
    mode = torch.randint(MODES, (n,), generator=stream)
    centres = torch.randn(NUM_CLASSES, MODES, DIMENSIONS, generator=stream)
    x = centres[y, mode] + torch.randn(n, DIMENSIONS, generator=stream)
    return (x / (1 + torch.arange(DIMENSIONS)).sqrt()).relu(), y


def restarts(x: Tensor, y: Tensor) -> Strata:
    """Return clusters by ten restarts of k-means on all images of a class, in float64."""
    groups, rows = torch.empty_like(y), x.double().numpy()
    for label in y.unique().tolist():
        here = y == label
        model = KMeans(CLUSTERS, n_init=10, random_state=label).fit(rows[here.numpy()])
        groups[here] = torch.from_numpy(model.labels_).long()
    return strata_of(groups, y)


def ours(x: Tensor, y: Tensor) -> Strata:
    """Return clusters as a run makes them."""
    return cicf.cluster_by_class(x, y, clusters_per_class=CLUSTERS, seed=0)


CONTESTANTS: dict[str, Cluster] = {"restarts": restarts, "ours": ours}


def inertia(x: Tensor, strata: Strata) -> float:
    """Return the sum of squared distances from the means of the clusters."""
    parts = (x[members].double() for members in strata.members)
    return sum(float((part - part.mean(dim=0)).square().sum()) for part in parts)


def compare(n: int, rounds: int) -> dict[str, float]:
    """Return the seconds of both, and the medians of their ratios."""
    seconds: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    quality: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for seed in range(rounds):
        x, y = features(n, seed)
        for name, cluster in CONTESTANTS.items():
            start = time.perf_counter()
            strata = cluster(x, y)
            seconds[name].append(time.perf_counter() - start)
            quality[name].append(inertia(x, strata))
    pairs = {
        key: [a / b for a, b in zip(values["ours"], values["restarts"], strict=True)]
        for key, values in (("time", seconds), ("inertia", quality))
    }
    return {
        "restarts": statistics.median(seconds["restarts"]),
        "ours": statistics.median(seconds["ours"]),
        "time_ratio": statistics.median(pairs["time"]),
        "inertia_ratio": statistics.median(pairs["inertia"]),
        "worst_inertia_ratio": max(pairs["inertia"]),
    }


def exponent(seconds: dict[int, float]) -> float:
    """Return p of the fit time ∝ N^p."""
    numbers, times = np.log(list(seconds)), np.log(list(seconds.values()))
    return float(np.polyfit(numbers, times, 1)[0])


def share_of_training(steps: int) -> dict[str, float]:
    """Return the seconds of clustering and of a step, and the share of 60 epochs, extrapolated."""
    setting = SETTINGS["digits"]
    data = TensorDataset(*setting.batch(DIGITS, seed=0))
    start = time.perf_counter()
    x, y = dataset_features(data)
    read = time.perf_counter() - start
    start = time.perf_counter()
    cicf.cluster_by_class(x, y, clusters_per_class=CLUSTERS)
    clustered = time.perf_counter() - start
    place = Place("default", "digits", "Z_0", setting.inner, setting.outer)
    with workers([place], "own") as entered:
        seconds, _ = race(entered, warm_ups=3, rounds=steps)
    step = statistics.median(seconds["default"])
    training = step * EPOCHS * math.ceil(DIGITS / setting.outer)
    return {
        "features": read,
        "k-means": clustered,
        "step": step,
        "training": training,
        "share": (read + clustered) / (read + clustered + training),
    }


def main() -> None:
    """Print the tables and, if asked, write them as JSON."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="one round instead of 5")
    options.add_argument("--json", type=Path, help="write the numbers to this file")
    options.add_argument("--numbers", type=int, nargs="+", default=NUMBERS, help="sizes N")
    options.add_argument("--steps", type=int, help="steps to time; default: 15, and 3 with --quick")
    chosen = options.parse_args()
    rounds = 1 if chosen.quick else 5
    print(f"clustering, {NUM_CLASSES} classes of {DIMENSIONS} features; ten restarts = 1")
    print(f"  {'N':>8}{'restarts, s':>13}{'ours, s':>9}{'time':>8}{'inertia':>9}{'worst':>8}")
    rows: dict[int, dict[str, float]] = {}
    for n in chosen.numbers:
        row = rows[n] = compare(n, rounds)
        print(
            f"  {n:>8}{row['restarts']:>13.2f}{row['ours']:>9.2f}{row['time_ratio']:>8.3f}"
            f"{row['inertia_ratio']:>9.4f}{row['worst_inertia_ratio']:>8.4f}"
        )
    power = exponent({n: row["ours"] for n, row in rows.items()}) if len(rows) > 1 else math.nan
    print(f"  time of ours grows as N^{power:.2f}; {rounds} rounds")
    share = share_of_training(chosen.steps or (3 if chosen.quick else 15))
    print(
        f"  Digits CNN, {DIGITS} images: features {share['features']:.2f} s, k-means "
        f"{share['k-means']:.2f} s: {100 * share['share']:.3f} % of {EPOCHS} epochs (at most "
        f"{100 * MOST_SHARE:.0f} %), extrapolated from {share['step']:.3f} s a step to "
        f"{share['training']:.0f} s"
    )
    print(machine.summary())
    write_json(chosen.json, {"rounds": rounds, "rows": rows, "exponent": power, "share": share})


if __name__ == "__main__":
    main()
