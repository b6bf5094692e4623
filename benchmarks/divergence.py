"""How θ and θ† part company: accuracy after every epoch, for short and long virtual steps.

Left, softmax regression on scikit-learn's digits; right, the small network of the example on its
confounded digits, three seeds. Prints the last values and writes a figure.
"""

import argparse
import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cicf

INNER, OUTER, TRAIN = 256, 84, 1200
Pair = tuple[Tensor, Tensor]
Curve = list[tuple[float, float]]


def digits() -> tuple[Pair, Pair]:
    """Return handwritten digits to train on and to test on."""
    found = load_digits()
    x = torch.tensor(found.images, dtype=torch.float32)[:, None] / 16
    y = torch.tensor(found.target)
    return (x[:TRAIN], y[:TRAIN]), (x[TRAIN:], y[TRAIN:])


def confounded(data: Pair, strength: float, seed: int) -> Pair:
    """Return images whose background is lit by the label in a share `strength` of them."""
    x, y = data
    stream = torch.Generator().manual_seed(seed)
    light = torch.randint(10, y.shape, generator=stream)
    tells = torch.rand(y.shape, generator=stream) < strength
    light = torch.where(tells, y, light)[:, None, None, None] / 9
    return torch.maximum(x, 0.6 * light) + 0.1 * torch.randn(x.shape, generator=stream), y


def linear() -> nn.Module:
    """Return softmax regression."""
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    """Return two convolutions and a linear head."""
    layers = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


def curve(
    build: Callable[[], nn.Module],
    data: tuple[Pair, Pair],
    *,
    alpha: float,
    lr: float,
    epochs: int,
    seed: int,
) -> Iterator[tuple[float, float]]:
    """Yield the test accuracies at θ and at θ† in percent after every epoch."""
    (x, y), test = data
    torch.manual_seed(seed)
    model = build()
    step = cicf.Intervention(model, alpha=alpha, measures_before=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    strata = cicf.cluster_dataset(TensorDataset(x, y), seed=seed)
    inner = cicf.StratifiedSampler(strata, size=INNER, seed=seed)
    outer = cicf.RandomSampler(len(y), size=OUTER, seed=seed)
    for number in range(epochs * len(outer)):
        a, b = inner.batch(number), outer.batch(number)
        optimizer.zero_grad()
        step.backward((x[a], y[a]), (x[b], y[b]))
        optimizer.step()
        if (number + 1) % len(outer) == 0:
            moved = copy.deepcopy(model)
            moved.load_state_dict(step.theta_dagger(DataLoader(TensorDataset(x, y), 512)))
            yield accuracy(model, test), accuracy(moved, test)


def accuracy(model: nn.Module, data: Pair) -> float:
    """Return the share of images that are classified rightly, in percent."""
    with torch.no_grad():
        return 100 * float((model(data[0]).argmax(dim=1) == data[1]).double().mean())


def main() -> None:
    """Train, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("docs/figures/divergence.png"))
    parser.add_argument("--epochs", type=int, default=30)
    options = parser.parse_args()
    train, test = digits()
    dark = confounded(train, 0.9, seed=1), confounded(test, 0.0, seed=2)
    panels = {
        "softmax regression": (linear, (train, test), 0.3, (0.5, 4.0), (0, 1, 2)),
        "two convolutions, confounded": (convolutions, dark, 0.1, (0.1, 0.3), (0, 1, 2)),
    }
    figure = Figure(figsize=(8, 3.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    for axis, (name, panel) in zip(figure.subplots(1, 2), panels.items(), strict=True):
        build, data, lr, alphas, seeds = panel
        for alpha, colour in zip(alphas, ("tab:blue", "tab:red"), strict=True):
            for seed in seeds:
                points = list(
                    curve(build, data, alpha=alpha, lr=lr, epochs=options.epochs, seed=seed)
                )
                print(f"{name}, alpha {alpha}, seed {seed}: theta {points[-1][0]:.1f}", end="")
                print(f", theta_dagger {points[-1][1]:.1f}", flush=True)
                for which, line, label in ((0, ":", "θ"), (1, "-", "θ†")):
                    values = [point[which] for point in points]
                    text = f"{label}, α = {alpha:g}" if seed == seeds[0] else None
                    axis.plot(range(1, len(values) + 1), values, line, color=colour, label=text)
        axis.set(title=name, xlabel="epoch", ylabel="test accuracy in %", ylim=(0, 100))
        axis.legend(fontsize=8, loc="lower right")
    options.output.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.output)


if __name__ == "__main__":
    main()
