"""What tests of methods share: small networks with the layouts of the real ones, images, draws."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cicf.core.draw import Draw, Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Draws, Evaluated
from cicf.data.sampling import Sizes, make_samplers
from cicf.data.strata import strata_of
from cicf.data.transforms import HALF, Transform
from cicf.method import Given, Method, MethodConfig
from cicf.models.split import SplitModel
from cicf.training import OptimConfig
from cicf.training.updates import Updates

CLASSES = 3
SIDE = 16
TRANSFORM = Transform(SIDE, *HALF, augment="none")


class DigitsLayout(nn.Module):
    """Has the parts of the Digits CNN, smaller and without kinks."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.block1, self.block2, self.block3 = (
            nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.Tanh(), nn.AvgPool2d(2))
            for channels in (3, width, width)
        )
        self.flatten = nn.Flatten()
        self.head = nn.Linear(width * 2 * 2, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.flatten(self.block3(self.block2(self.block1(x)))))
        return logits


class ResNetLayout(nn.Module):
    """Has the parts of a ResNet, with batch norm in each."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 3, padding=1)
        self.bn1, self.relu, self.maxpool = nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)
        self.layer1, self.layer2, self.layer3, self.layer4 = (
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(4)
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        z = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        z = self.layer4(self.layer3(self.layer2(self.layer1(z))))
        logits: Tensor = self.fc(self.avgpool(z).flatten(1))
        return logits


class AlexNetLayout(nn.Module):
    """Has the parts of AlexNet, with its dropout and its linear layers."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.avgpool = nn.AdaptiveAvgPool2d(2)
        self.classifier = nn.Sequential(
            nn.Dropout(0.5), nn.Linear(4 * width, 8), nn.ReLU(), nn.Linear(8, CLASSES)
        )

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.avgpool(self.features(x)).flatten(1))
        return logits


STAGES: dict[type[nn.Module], tuple[str, ...]] = {
    DigitsLayout: ("block1", "block2", "block3"),
    ResNetLayout: ("maxpool", "layer1", "layer2", "layer3", "layer4", "avgpool"),
    AlexNetLayout: ("features.2", "features.5", "classifier.2"),
}
LAYOUTS = {"digits": DigitsLayout, "resnet": ResNetLayout, "alexnet": AlexNetLayout}


def layout(name: str = "digits", *, seed: int = 0) -> SplitModel:
    """Return a small network with the layout of a real one, and its stages known."""
    torch.manual_seed(seed)
    network = LAYOUTS[name]()
    return SplitModel(network, cut="input", before=(), stages=STAGES[type(network)])


def pictures(num_domains: int = 3, *, per_class: int = 8, seed: int = 0) -> DomainDataset:
    """Return noise in which the class shows in one colour and the domain in another."""
    stream = torch.Generator().manual_seed(seed)
    count = num_domains * CLASSES * per_class
    y, domain = torch.arange(count) % CLASSES, torch.arange(count) // (CLASSES * per_class)
    images = torch.randint(100, (count, 3, SIDE, SIDE), dtype=torch.uint8, generator=stream)
    images[:, 0] += (50 * y)[:, None, None].to(torch.uint8)
    images[:, 1] += (20 * domain)[:, None, None].to(torch.uint8)
    names = tuple(f"domain{number}" for number in range(num_domains))
    return DomainDataset(images, y, domain, ("a", "b", "c"), names)


def given_for(model: SplitModel, data: DomainDataset, **facts: object) -> Given:
    """Return what a method is built for, on these images."""
    known: dict[str, object] = {
        "num_classes": CLASSES,
        "sources": tuple(data.domain.unique().tolist()),
        "num_images": len(data),
        "image_size": SIDE,
        "epochs": 4,
        "steps_per_epoch": 3,
        "lr": 0.05,
    }
    return Given(model, **{**known, **facts})


def draw_for(
    method: Method, data: DomainDataset, *, step: int = 0, inner: int = 18, outer: int = 24
) -> Draw:
    """Return what a method draws in a step, its images of torch's default type."""
    strata = strata_of(data.y, data.y)
    samplers = make_samplers(method.sampling, data, Sizes(inner, outer, ()), strata=strata, seed=0)
    draw = Draws(data, TRANSFORM, samplers, seed=0)[step]
    outer_part, inner_part = draw.outer, draw.inner
    return draw._replace(
        outer=_as_default(outer_part), inner=inner_part and _as_default(inner_part)
    )


def samples(data: DomainDataset, places: Tensor | None = None) -> Samples:
    """Return images of a data set as a batch; all of them by default."""
    places = torch.arange(len(data)) if places is None else places
    return _as_default(Evaluated(data, TRANSFORM).batch(places))


def built(config: MethodConfig, model: SplitModel, data: DomainDataset, **facts: object) -> Method:
    """Return a method that has acted before its first epoch, with the model in training mode."""
    torch.manual_seed(0)
    method = config.build(given_for(model, data, **facts))
    model.train()
    method.before_epoch(0, Evaluated(data, TRANSFORM))
    return method


def moved_by(method: Method, draw: Draw, *, optim: OptimConfig | None = None) -> Tensor:
    """Return how far one step moves the parameters of the network, all in one row."""
    torch.manual_seed(1)
    before = [parameter.detach().clone() for parameter in method.model.parameters()]
    optim = optim or OptimConfig(momentum=0.0, weight_decay=0.0, schedule="constant")
    Updates(method, optim, epochs=1).take(draw, step=1, kept=lambda: "nothing was kept")
    after = list(method.model.parameters())
    return torch.cat([(a.detach() - b).flatten() for a, b in zip(after, before, strict=True)])


def gradients_of(method: Method, draw: Draw, *, turn: int = 0) -> Mapping[str, Tensor]:
    """Return what one turn leaves in `.grad` of the network, by name, zero where there is none."""
    method.model.zero_grad()
    method.turns[turn].backward(draw)
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.clone()
        for name, p in method.model.named_parameters()
    }


def cross_entropy_gradients(model: SplitModel, batch: Samples) -> Mapping[str, Tensor]:
    """Return the gradient of the mean cross-entropy of a batch by autograd."""
    loss = F.cross_entropy(model(batch.x), batch.y)
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    return {
        name: torch.zeros_like(p) if g is None else g
        for (name, p), g in zip(model.named_parameters(), found, strict=True)
    }


def assert_same(
    found: Mapping[str, Tensor], expected: Mapping[str, Tensor], *, atol: float
) -> None:
    """Check that two sets of gradients are the same."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=0, atol=atol)


def _as_default(batch: Samples) -> Samples:
    return batch._replace(x=batch.x.to(torch.get_default_dtype()))
