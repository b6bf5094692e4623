"""The CICF step in a plain training loop.

The brightness behind handwritten digits follows the label in training, and nothing in the test.
"""

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import cicf

ALPHA, BETA, EPOCHS = 0.3, 0.1, 15


def confounded(x: Tensor, y: Tensor, strength: float, seed: int) -> Tensor:
    """Return images whose background is lit by the label in a share `strength` of them."""
    stream = torch.Generator().manual_seed(seed)
    light = torch.randint(10, y.shape, generator=stream)
    tells = torch.rand(y.shape, generator=stream) < strength
    light = torch.where(tells, y, light)[:, None, None, None] / 9
    return torch.maximum(x, 0.6 * light) + 0.1 * torch.randn(x.shape, generator=stream)


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    return float((model(x).argmax(dim=1) == y).double().mean() * 100)


def network(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    layers = nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.MaxPool2d(2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(128, 10))


digits = load_digits()
x, y = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16, torch.tensor(digits.target)
train = TensorDataset(confounded(x[:1200], y[:1200], 0.9, seed=1), y[:1200])
test = confounded(x[1200:], y[1200:], 0.0, seed=2), y[1200:]
print(f"accuracy in % on backgrounds that tell nothing, after {EPOCHS} epochs")
for seed in range(3):
    strata = cicf.cluster_dataset(train, clusters_per_class=3, seed=seed)
    outer = DataLoader(train, batch_sampler=cicf.RandomSampler(len(train), size=84, seed=seed))
    sampler = cicf.StratifiedSampler(strata, size=256, steps=len(outer), seed=seed)
    erm, causal = network(seed), network(seed)
    step = cicf.Intervention(causal, alpha=ALPHA)  # line 1
    optimizers = [torch.optim.SGD(model.parameters(), lr=BETA) for model in (erm, causal)]
    for _ in range(EPOCHS):
        for inner, (x, y) in zip(DataLoader(train, batch_sampler=sampler), outer, strict=True):
            for optimizer in optimizers:
                optimizer.zero_grad()
            F.cross_entropy(erm(x), y).backward()
            step.backward(inner, (x, y))  # line 2, instead of loss.backward()
            for optimizer in optimizers:
                optimizer.step()
    theta = accuracy(causal, *test)
    causal.load_state_dict(step.theta_dagger(DataLoader(train, batch_size=256)))  # line 3
    kept, plain = accuracy(causal, *test), accuracy(erm, *test)
    print(f"seed {seed}: ERM {plain:.1f}, CICF {kept:.1f} (θ, before line 3: {theta:.1f})")
