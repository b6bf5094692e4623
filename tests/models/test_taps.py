"""What flows between the layers of a network: read without a trace, or changed for a while."""

import pytest
import torch
from tests.support.methods import LAYOUTS, layout, pictures, samples
from torch import Tensor, nn
from torch.func import functional_call

from cicf import ConfigError
from cicf.models import SplitModel, build_model
from cicf.models.taps import changed, chosen_layers, features_and_logits, head_of, maps_of

DATA = pictures(2)


def images(count: int = 5) -> Tensor:
    return samples(DATA).x[:count]


def split(network: nn.Module) -> SplitModel:
    return SplitModel(network, cut="input", before=())


def num_hooks(model: SplitModel) -> int:
    parts = list(model.modules())
    return sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in parts)


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_head_makes_logits_of_the_features(name: str) -> None:
    model = layout(name).eval()
    features, logits = features_and_logits(model, images())
    assert torch.equal(logits, model(images()))
    torch.testing.assert_close(head_of(model)(features), logits)
    assert features.shape == (5, head_of(model).in_features)


@pytest.mark.parametrize(
    ("name", "size", "width"),
    [("digits_cnn", 32, 256), ("resnet18", 64, 512), ("alexnet", 64, 4096)],
)
def test_the_heads_of_the_papers_networks_are_found(name: str, size: int, width: int) -> None:
    model = build_model(name, num_classes=7, image_size=size)
    head = head_of(model)
    assert (head.in_features, head.out_features) == (width, 7)
    model.eval()
    x = torch.randn(2, 3, size, size)
    features, logits = features_and_logits(model, x)
    torch.testing.assert_close(head(features), logits)


def test_a_network_without_a_linear_layer_is_refused() -> None:
    model = split(nn.Sequential(nn.Conv2d(3, 4, 16), nn.Flatten()))
    with pytest.raises(ConfigError, match="last linear layer, but the network has none; choose"):
        features_and_logits(model, images())


def test_a_last_linear_layer_that_takes_no_part_is_refused() -> None:
    class Unused(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.spare = nn.Conv2d(3, 4, 16), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.conv(x).flatten(1)
            return logits

    with pytest.raises(ConfigError, match="last linear layer, but 'spare' takes no part in the f"):
        features_and_logits(split(Unused()), images())


def test_features_carry_gradients_to_what_lies_before() -> None:
    model = layout()
    features_and_logits(model, images()).features.sum().backward()
    assert head_of(model).weight.grad is None
    first = next(model.parameters())
    assert first.grad is not None
    assert first.grad.abs().sum() > 0


def test_features_are_those_of_the_parameters_that_are_put_in() -> None:
    model = layout()

    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = model

        def forward(self, x: Tensor) -> Tensor:
            return features_and_logits(self.inside, x).features

    zeros = {f"inside.{name}": torch.zeros_like(p) for name, p in model.named_parameters()}
    assert functional_call(Reading(), zeros, (images(),)).abs().max() == 0
    assert features_and_logits(model, images()).features.abs().max() > 0


@pytest.mark.parametrize("name", LAYOUTS)
def test_maps_are_what_the_modules_put_out(name: str) -> None:
    model = layout(name).eval()
    parts = dict(model.network.named_modules())
    maps, logits = maps_of(model, images(), model.stages[:2])
    assert torch.equal(logits, model(images()))
    assert list(maps) == list(model.stages[:2])
    if name == "digits":
        z = parts["block1"](images())
        assert torch.equal(maps["block1"], z)
        assert torch.equal(maps["block2"], parts["block2"](z))


def test_a_change_reaches_everything_behind_it() -> None:
    model = layout()
    parts = dict(model.network.named_modules())
    with changed(model, {"block2": lambda z: 2 * z}):
        logits = model(images())
    z = 2 * parts["block2"](parts["block1"](images()))
    torch.testing.assert_close(logits, parts["head"](parts["block3"](z).flatten(1)))


def test_several_changes_act_each_at_its_place() -> None:
    model = layout()
    with changed(model, {"block1": torch.zeros_like, "head": lambda z: z + 1}):
        zeroed = model(images())
    with changed(model, {"block1": torch.zeros_like}):
        torch.testing.assert_close(zeroed, model(images()) + 1)


def test_nothing_stays_behind() -> None:
    model = layout()
    plain = model(images())
    with changed(model, {"block1": torch.zeros_like}):
        assert num_hooks(model) == 1
    maps_of(model, images(), ["block1", "block2"])
    features_and_logits(model, images())
    assert num_hooks(model) == 0
    assert torch.equal(model(images()), plain)


def test_nothing_stays_behind_when_something_fails() -> None:
    def failing(z: Tensor) -> Tensor:
        raise ZeroDivisionError(z)

    model = layout()
    with pytest.raises(ZeroDivisionError), changed(model, {"block1": failing}):
        model(images())
    with pytest.raises(KeyError), changed(model, {"block1": failing, "block9": failing}):
        pass
    with pytest.raises(RuntimeError):
        features_and_logits(model, torch.zeros(1, 5, 16, 16))
    with pytest.raises(RuntimeError):
        maps_of(model, torch.zeros(1, 5, 16, 16), ["block1"])
    assert num_hooks(model) == 0


def test_changes_may_lie_inside_of_each_other() -> None:
    model = layout()
    with changed(model, {"block1": lambda z: z + 1}):
        once, _ = maps_of(model, images(), ["block1"])
    plain, _ = maps_of(model, images(), ["block1"])
    torch.testing.assert_close(once["block1"], plain["block1"] + 1)


def test_layers_are_those_that_are_named() -> None:
    model = layout("resnet")
    assert chosen_layers(model, ["layer3", "conv1"], option="m.layers", stages=[0]) == (
        "layer3",
        "conv1",
    )


def test_without_names_layers_are_stages() -> None:
    model = layout("resnet")
    assert chosen_layers(model, (), option="m.layers", stages=[1, 2]) == ("layer1", "layer2")
    assert chosen_layers(model, (), option="m.layers", stages=[-1]) == ("avgpool",)


def test_stages_that_a_network_has_not_are_left_out() -> None:
    model = layout("digits")
    assert chosen_layers(model, (), option="m.layers", stages=[2, 3, 4]) == ("block3",)
    assert chosen_layers(model, (), option="m.layers", stages=[-4, -3]) == ("block1",)


def test_a_layer_that_is_none_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"m\.layers='layr1' is no module of the network; did yo"):
        chosen_layers(layout("resnet"), ["layr1"], option="m.layers", stages=[0])
    with pytest.raises(ConfigError, match=r"m\.layers='' is no module of the network"):
        chosen_layers(layout("resnet"), [""], option="m.layers", stages=[0])


def test_a_network_without_known_stages_wants_names() -> None:
    model = split(nn.Sequential(nn.Conv2d(3, 4, 16), nn.Flatten(), nn.Linear(4, 3)))
    with pytest.raises(ConfigError, match=r"not known, so name the modules .* some of 0, 1, 2"):
        chosen_layers(model, (), option="m.layers", stages=[0])
    assert chosen_layers(model, ["0"], option="m.layers", stages=[0]) == ("0",)


def test_stages_none_of_which_a_network_has_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"has no stage among 7, 8; name the modules .* m\.layer"):
        chosen_layers(layout("digits"), (), option="m.layers", stages=[7, 8])
