"""Which modules put out maps, and which of them everything after goes through."""

import copy

import pytest
import torch
from tests.support.methods import SIDE, layout
from torch import Tensor, nn

from cicf import ConfigError
from cicf.models import SplitModel, build_model
from cicf.models.maps import check_maps, is_bottleneck, modules_with_maps


def split(network: nn.Module) -> SplitModel:
    return SplitModel(network, cut="input", before=())


class Twice(nn.Module):
    """Runs one of its parts twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Conv2d(3, 4, 3), nn.Tanh()
        self.second, self.head = nn.Conv2d(4, 2, 3), nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.act(self.second(self.act(self.first(x)))).mean((2, 3)))
        return logits


class Past(nn.Module):
    """Has a way past its last map."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat([self.conv(x).mean((2, 3)), x.amax((2, 3))], 1))
        return logits


class Counted(nn.Module):
    """Takes the number of samples from its input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 3), nn.Linear(4 * 14 * 14, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.conv(x).reshape(len(x), 4 * 14 * 14))
        return logits


@pytest.mark.parametrize(
    ("name", "last"), [("digits_cnn", "block4"), ("resnet18", "layer4"), ("alexnet", "avgpool")]
)
def test_the_last_map_of_known_networks(name: str, last: str) -> None:
    model = build_model(name, num_classes=3, image_size=64 if name != "digits_cnn" else 32)
    maps = modules_with_maps(model, 64 if name != "digits_cnn" else 32)
    assert maps[-1] == last


def test_vectors_and_maps_of_one_place_are_no_maps() -> None:
    maps = modules_with_maps(layout("resnet"), SIDE)
    assert "layer4" in maps
    assert not {"avgpool", "fc"} & set(maps)


def test_a_module_that_runs_twice_is_left_out() -> None:
    assert modules_with_maps(split(Twice()), SIDE) == ("first", "second")


def test_a_look_leaves_the_network_as_it_was() -> None:
    model = layout("resnet").train()
    model.network.layer1.eval()
    before = copy.deepcopy(model.state_dict())
    is_bottleneck(model, modules_with_maps(model, SIDE)[-1], SIDE)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.network.layer2.training
    assert not model.network.layer1.training
    assert not any(part._forward_hooks for part in model.modules())


@pytest.mark.parametrize(
    ("backbone", "name"), [("digits", "block3"), ("resnet", "layer4"), ("alexnet", "avgpool")]
)
def test_nothing_goes_past_the_last_map_of_a_plain_network(backbone: str, name: str) -> None:
    assert is_bottleneck(layout(backbone), name, SIDE)


@pytest.mark.parametrize("network", [Past(), Counted()])
def test_what_depends_on_more_than_the_map_is_seen(network: nn.Module) -> None:
    assert not is_bottleneck(split(network), "conv", SIDE)


def test_a_module_without_a_map_is_refused_with_a_sentence() -> None:
    maps = modules_with_maps(layout(), SIDE)
    check_maps(["block1"], maps, option="method.layer")
    with pytest.raises(ConfigError, match=r"method\.layer='head' does not put out one map"):
        check_maps(["head"], maps, option="method.layer")
