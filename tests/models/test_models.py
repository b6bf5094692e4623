"""Networks, where they are cut, and the weights they start from."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from cicf import ConfigError, DataError, Intervention
from cicf.models import ARCHITECTURES, DigitsCnn, build_model, load_weights, modules_until


def num_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_digits_network_has_the_published_size() -> None:
    model = DigitsCnn(10)
    assert num_parameters(model.head) == 2570
    assert num_parameters(model) - 2570 == (3 * 9 + 1) * 64 + 3 * (64 * 9 + 1) * 64
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert all(block[0].bias.abs().max() == 0 for block in (model.block1, model.block4))


def output_of_last(network: nn.Module, names: tuple[str, ...], x: Tensor) -> tuple[int, ...]:
    """Return the shape of Z: what the last module before the cut puts out."""
    seen: list[Tensor] = []
    handle = network.get_submodule(names[-1]).register_forward_hook(
        lambda _, __, output: seen.append(output)
    )
    network.eval()(x)
    handle.remove()
    return tuple(seen[-1].shape[1:])


SHAPES = {
    "digits_cnn": [(64, 16, 16), (64, 8, 8), (64, 4, 4), (64, 2, 2)],
    "resnet18": [(64, 16, 16), (64, 16, 16), (128, 8, 8), (256, 4, 4), (512, 2, 2), (512, 1, 1)],
    "alexnet": [(64, 7, 7), (192, 3, 3), (384, 3, 3), (256, 3, 3), (256, 1, 1), (4096,)],
}


@pytest.mark.parametrize("name", SHAPES)
def test_cuts_are_where_the_paper_has_them(name: str) -> None:
    architecture = ARCHITECTURES[name]
    network = architecture.build(4)
    x = torch.zeros(1, 3, 32 if name == "digits_cnn" else 64, 32 if name == "digits_cnn" else 64)
    cuts = [names for names in architecture.cuts.values() if names]
    assert architecture.cuts["input"] == ()
    assert [output_of_last(network, names, x) for names in cuts] == SHAPES[name]


@pytest.mark.parametrize("name", ["digits_cnn", "resnet18", "alexnet"])
def test_stages_are_what_a_trace_finds(name: str) -> None:
    side = 32 if name == "digits_cnn" else 64
    network, x = ARCHITECTURES[name].build(4), torch.zeros(1, 3, side, side)
    for names in ARCHITECTURES[name].cuts.values():
        if names:
            traced = modules_until(network, names[-1], x)
            assert moving(network, traced) == moving(network, names)


def moving(network: nn.Module, before: tuple[str, ...]) -> set[str]:
    """Return the parameters after the cut."""
    prefixes = tuple(f"{name}." for name in before)
    return {name for name, _ in network.named_parameters() if not name.startswith(prefixes)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "cut", "side"),
    [
        ("swin_t", "features.0", 32),
        ("googlenet", "maxpool1", 64),
        ("resnet18", "layer1.0", 32),
    ],
)
def test_any_model_of_torchvision_takes_a_step_after_a_named_module(
    name: str, cut: str, side: int
) -> None:
    model = build_model(name, num_classes=3, cut=cut, image_size=side)
    step = Intervention(model, h=model.h, alpha=0.01, batch_norm="frozen", measures_before=False)
    batch = torch.randn(2, 3, side, side), torch.tensor([0, 1])
    terms = step.backward(batch, batch)
    assert terms.outer_loss.isfinite()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_cut_inside_a_module_takes_what_has_run() -> None:
    model = build_model("resnet18", num_classes=3, cut="layer1.0", image_size=32)
    assert model.before == ("conv1", "bn1", "relu", "maxpool", "layer1.0")


def own_network(num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, num_classes))


NOT_A_FUNCTION = 3


def partly_frozen_network(num_classes: int) -> nn.Module:
    network = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(192, num_classes))
    network[0].eval()
    return network


def test_parts_that_a_builder_froze_stay_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    model = build_model("mine:partly_frozen_network", num_classes=3, cut="0", image_size=8)
    assert [model.training, model.network[0].training] == [True, False]


def test_own_builder_is_named_by_its_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    model = build_model("mine:own_network", num_classes=5, image_size=8)
    assert model.cut == "input"
    assert model(torch.zeros(2, 3, 8, 8)).shape == (2, 5)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"name": "resnet81"}, "model='resnet81' is not known; did you mean 'resnet18'"),
        ({"name": "zzzz"}, "choose one of digits_cnn, resnet18"),
        ({"name": "nowhere:builder"}, "cannot be imported"),
        ({"name": "mine:NOT_A_FUNCTION"}, "is not a function"),
        ({"name": "mine:own_network", "image_size": 16}, "cannot take images of 16 pixels"),
        ({"name": "vit_b_32", "image_size": 64}, "cannot take images of 64 pixels"),
        ({"name": "digits_cnn", "cut": "Z_4"}, "cut='Z_4' is no stage.*did you mean 'Z_3'"),
        ({"name": "digits_cnn", "cut": "blok1"}, "did you mean 'block1'"),
        ({"name": "fcn_resnet50"}, "is not known"),
    ],
)
def test_unknown_models_and_cuts_are_named(
    options: dict[str, object], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    with pytest.raises(ConfigError, match=sentence):
        build_model(num_classes=3, **options)


def saved(folder: Path, state: dict[str, Tensor], kind: str) -> str:
    path = folder / f"weights.{kind}"
    if kind == "safetensors":
        save_file({key: value.contiguous() for key, value in state.items()}, path)
    else:
        torch.save({"epoch": 3, "state_dict": {f"module.{k}": v for k, v in state.items()}}, path)
    return str(path)


@pytest.mark.parametrize("kind", ["safetensors", "pth"])
def test_weights_come_back_from_a_file(kind: str, tmp_path: Path) -> None:
    source, target = DigitsCnn(10), DigitsCnn(10)
    found = load_weights(target, saved(tmp_path, source.state_dict(), kind), name="digits_cnn")
    assert found.new == ()
    for key, value in source.state_dict().items():
        assert torch.equal(target.state_dict()[key], value)


@pytest.mark.parametrize("change", ["other classes", "no head", "no last block either"])
def test_head_may_be_missing_or_of_other_classes(change: str, tmp_path: Path) -> None:
    state = DigitsCnn(7).state_dict()
    dropped = {
        "other classes": (),
        "no head": ("head",),
        "no last block either": ("head", "block4"),
    }
    state = {key: value for key, value in state.items() if not key.startswith(dropped[change])}
    target = DigitsCnn(10)
    before = target.head.weight.clone()
    found = load_weights(target, saved(tmp_path, state, "safetensors"), name="digits_cnn")
    assert {"head.weight", "head.bias"} <= set(found.new)
    assert torch.equal(target.head.weight, before)
    assert torch.equal(target.block1[0].weight, state["block1.0.weight"])


def test_half_precision_is_widened(tmp_path: Path) -> None:
    state = {key: value.half() for key, value in DigitsCnn(10).state_dict().items()}
    target = DigitsCnn(10)
    load_weights(target, saved(tmp_path, state, "safetensors"), name="digits_cnn")
    assert target.head.weight.dtype == torch.float32
    assert torch.equal(target.head.weight, state["head.weight"].float())


def _without(prefix: str) -> Callable[[dict[str, Tensor]], dict[str, Tensor]]:
    return lambda state: {k: v for k, v in state.items() if not k.startswith(prefix)}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (_without("block2"), "lacks 'block2.0.weight'"),
        (
            lambda s: {**s, "block1.0.weight": torch.zeros(64, 3, 5, 5)},
            r"\[64, 3, 5, 5\], the network",
        ),
        (
            lambda s: {**s, "block9.weight": torch.zeros(1)},
            "'block9.weight' that the network has no",
        ),
    ],
)
def test_weights_that_do_not_fit_are_named_and_change_nothing(
    change: Callable[[dict[str, Tensor]], dict[str, Tensor]], sentence: str, tmp_path: Path
) -> None:
    target = DigitsCnn(10)
    before = {key: value.clone() for key, value in target.state_dict().items()}
    path = saved(tmp_path, change(DigitsCnn(10).state_dict()), "safetensors")
    with pytest.raises(DataError, match=sentence):
        load_weights(target, path, name="digits_cnn")
    assert all(torch.equal(before[key], value) for key, value in target.state_dict().items())


class Malicious:
    """Would run code if it were unpickled."""

    def __reduce__(self) -> tuple[object, ...]:
        return (sys.exit, (3,))


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"nonsense")
    (tmp_path / "broken.pth").write_bytes(b"nonsense")
    torch.save(Malicious(), tmp_path / "code.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    for name in ("broken.safetensors", "broken.pth", "code.pth"):
        with pytest.raises(DataError, match="cannot be read as weights"):
            load_weights(DigitsCnn(10), str(tmp_path / name), name="digits_cnn")
    with pytest.raises(DataError, match="holds no state dict"):
        load_weights(DigitsCnn(10), str(tmp_path / "list.pth"), name="digits_cnn")
    with pytest.raises(DataError, match="is no file"):
        load_weights(DigitsCnn(10), str(tmp_path / "nothing.pth"), name="digits_cnn")


def test_imagenet_weights_of_our_own_network_do_not_exist() -> None:
    with pytest.raises(
        ConfigError, match="exist for the models of torchvision, not for digits_cnn"
    ):
        load_weights(DigitsCnn(10), "imagenet", name="digits_cnn")


def test_download_that_fails_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    network = ARCHITECTURES["resnet18"].build(4)
    with pytest.raises(ConfigError, match=r"have to be downloaded once.*pass the path of the file"):
        load_weights(network, "imagenet", name="resnet18")


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("resnet18", "resnet18_imagenet_fp16.safetensors"),
        ("alexnet", "alexnet_features_fp16.safetensors"),
    ],
)
def test_real_weights_load_without_their_head(name: str, file: str, real_data: Path) -> None:
    path = real_data.parent / "weights" / file
    if not path.exists():
        pytest.skip(f"{path} is not there")
    network = ARCHITECTURES[name].build(7)
    found = load_weights(network, str(path), name=name)
    assert {key.split(".")[0] for key in found.new} == {
        "resnet18": {"fc"},
        "alexnet": {"classifier"},
    }[name]
    assert all(value.isfinite().all() for value in network.state_dict().values())
