"""Where a network looks, and the pictures made of it."""

import importlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.figure import Figure
from PIL import Image
from tests.support.nets import conv_net, images, norm_net
from torch import Tensor, nn

from cicf import ConfigError, DataError
from cicf.models import SplitModel, build_model
from cicf.report.gradcam import GridRow, cam_layer, grad_cam, overlay, save_grid


def bilinear(out: int, into: int) -> Tensor:
    """Return the matrix that reads `into` pixels off `out` places, with pixel centres aligned."""
    centre = ((torch.arange(into) + 0.5) * out / into - 0.5).clamp(0, out - 1)
    return (1 - (centre[:, None] - torch.arange(out)).abs()).clamp(min=0)


@pytest.mark.usefixtures("float64")
def test_map_is_that_of_the_definition() -> None:
    model, (x, y) = conv_net(), images(6)
    activations = model[:5](x).detach().requires_grad_()
    score = model[5:](activations).gather(1, y[:, None]).sum()
    (gradient,) = torch.autograd.grad(score, activations)
    weights = gradient.mean(dim=(2, 3))
    coarse = torch.einsum("nc,nchw->nhw", weights, activations.detach()).clamp(min=0)
    fine = bilinear(4, 8) @ coarse @ bilinear(4, 8).T
    expected = fine / fine.flatten(1).amax(dim=1).clamp(min=1e-12)[:, None, None]
    assert cam_layer(model, x[:1]) == "relu2"
    assert (expected.flatten(1).amax(dim=1) > 0).sum() > 2
    torch.testing.assert_close(grad_cam(model, x, y), expected)


def swin() -> nn.Module:
    models = importlib.import_module("torchvision.models")
    network: nn.Module = models.SwinTransformer(
        [4, 4], 8, depths=[1, 1], num_heads=[1, 1], window_size=[2, 2], num_classes=3
    )
    return network


def vision_transformer() -> nn.Module:
    models = importlib.import_module("torchvision.models")
    network: nn.Module = models.VisionTransformer(
        32, 8, num_layers=1, num_heads=2, hidden_dim=16, mlp_dim=16, num_classes=3
    )
    return network


class Quadrants(nn.Module):
    """Keeps each quadrant of the image in a channel of its own."""

    def forward(self, x: Tensor) -> Tensor:
        parts = torch.zeros(len(x), 4, 8, 8)
        for channel, (top, left) in enumerate([(0, 0), (0, 4), (4, 0), (4, 4)]):
            here = (slice(top, top + 4), slice(left, left + 4))
            parts[:, channel, *here] = x.mean(dim=1)[:, *here]
        return parts


@pytest.mark.parametrize("quadrant", range(4))
def test_class_that_is_the_mean_of_one_quadrant_lights_that_quadrant_only(quadrant: int) -> None:
    model = nn.Sequential(Quadrants(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    cam = grad_cam(model, torch.ones(1, 3, 8, 8), torch.tensor([quadrant]))
    lit = torch.zeros(2, 2).flatten().index_fill(0, torch.tensor([quadrant]), 1).view(2, 2)
    assert torch.equal(cam[0], lit.repeat_interleave(4, dim=0).repeat_interleave(4, dim=1))


@cache
def built(name: str) -> SplitModel:
    """Return a network that tests share, as making one takes long."""
    return build_model(name, num_classes=3, image_size=32 if name == "digits_cnn" else 64)


@pytest.mark.parametrize(
    ("name", "side", "layer"),
    [
        ("digits_cnn", 32, "block3"),
        ("resnet18", 64, "layer3"),
        ("resnet18", 224, "layer4"),
        ("alexnet", 64, "features.4"),
        ("alexnet", 224, "features"),
    ],
)
def test_deepest_map_of_four_by_four_places_is_read(name: str, side: int, layer: str) -> None:
    assert cam_layer(built(name), torch.randn(1, 3, side, side)) == f"network.{layer}"


def test_stage_that_pools_everything_away_is_entered() -> None:
    stem = nn.Conv2d(3, 4, 3, padding=1)
    body = nn.Sequential(nn.Conv2d(4, 5, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
    model = nn.Sequential(stem, body, nn.Flatten())
    assert cam_layer(model, torch.randn(1, 3, 8, 8)) == "1.1"


def test_normalised_image_is_no_map() -> None:
    body = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.MaxPool2d(4))
    model = nn.Sequential(nn.BatchNorm2d(3), body, nn.Flatten(), nn.Linear(16, 2))
    assert cam_layer(model, torch.randn(1, 3, 8, 8)) == "1.0"


def test_image_need_not_be_square() -> None:
    model, x = built("resnet18"), torch.randn(2, 3, 128, 200)
    assert cam_layer(model, x[:1]) == "network.layer4"
    assert grad_cam(model, x, torch.tensor([0, 2])).shape == (2, 128, 200)


def test_swin_is_read_where_its_channels_come_first() -> None:
    model = swin()
    x = torch.randn(2, 3, 64, 64)
    assert cam_layer(model, x[:1]) == "permute"
    assert grad_cam(model, x, torch.tensor([0, 2])).isfinite().all()


def test_network_of_attention_asks_for_a_layer() -> None:
    model, x = vision_transformer(), torch.randn(1, 3, 32, 32)
    with pytest.raises(
        ConfigError, match=r"ends in tokens.*name a layer that puts out.*layer=\.\."
    ):
        cam_layer(model, x)
    with pytest.raises(ConfigError, match="name a layer"):
        grad_cam(model, x, torch.tensor([0]))


@pytest.mark.parametrize("name", ["resnet18", "alexnet"])
def test_activations_that_are_overwritten_are_read_before_that(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = built(name), torch.randn(2, 3, 64, 64)
    layer = {"resnet18": "network.layer4.0.bn1", "alexnet": "network.features.3"}[name]
    found = grad_cam(model, x, torch.tensor([0, 2]), layer=layer)
    for module in model.modules():
        if isinstance(module, nn.ReLU):
            assert module.inplace
            monkeypatch.setattr(module, "inplace", False)
    torch.testing.assert_close(found, grad_cam(model, x, torch.tensor([0, 2]), layer=layer))


def test_model_is_left_as_it_was() -> None:
    model, (x, y) = norm_net(), images(4)
    model.norm1.eval()
    model.stem.weight.requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    needs = [parameter.requires_grad for parameter in model.parameters()]
    grad_cam(model, x, y, layer="stem")
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == needs
    assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    assert not x.requires_grad
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
    assert all(p.grad is None for p in model.parameters() if p is not model.head.weight)


def test_frozen_parameters_change_nothing() -> None:
    model, (x, y) = conv_net(), images(4)
    expected = grad_cam(model, x, y)
    model.requires_grad_(False)
    with torch.no_grad():
        found = grad_cam(model, x, y)
    assert torch.equal(found, expected)
    assert not expected.requires_grad


def test_each_image_is_read_by_itself() -> None:
    model, (x, y) = norm_net(), images(4)
    together = grad_cam(model, x, y.int())
    alone = torch.cat([grad_cam(model, x[i : i + 1], y[i : i + 1]) for i in range(4)])
    torch.testing.assert_close(together, alone)
    assert grad_cam(model, x[:0], y[:0]).shape == (0, 8, 8)


def test_map_in_which_nothing_speaks_for_the_class_is_zero() -> None:
    model = conv_net()
    nn.init.constant_(model.head.weight, -1.0)
    x, y = images(3)
    assert torch.equal(grad_cam(model, x, y), torch.zeros(3, 8, 8))


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        ("boddy", "layer='boddy' is no module of the model; did you mean 'body'"),
        ("", "layer='' is no module"),
        ("head", r"layer='head' puts out \[1, 3\], which is no map.*name one that puts out"),
        ("head.unused", "layer='head.unused' puts out no tensor in the forward"),
    ],
)
def test_layers_that_cannot_be_read_are_named(layer: str, sentence: str) -> None:
    model, (x, y) = conv_net(), images(2)
    model.head.add_module("unused", nn.Identity())
    with pytest.raises(ConfigError, match=sentence):
        grad_cam(model, x, y, layer=layer)


def test_maps_with_channels_last_are_refused_by_name() -> None:
    model = swin()
    with pytest.raises(ConfigError, match=r"puts out \[1, 8, 8, 16\], which is no map of places"):
        grad_cam(model, torch.randn(1, 3, 64, 64), torch.tensor([0]), layer="norm")


@pytest.mark.parametrize("wrong", [-1, 3])
def test_class_that_the_model_does_not_have_is_named(wrong: int) -> None:
    with pytest.raises(DataError, match=f"class {wrong} is not one of the model's, 0 to 2"):
        grad_cam(conv_net(), images(2)[0], torch.tensor([0, wrong]))


def picture(side: int = 32) -> Tensor:
    return torch.randint(256, (3, side, side), dtype=torch.uint8)


def test_overlay_is_grey_where_the_map_is_zero() -> None:
    image, cam = picture(), torch.zeros(32, 32)
    cam[:16] = 1.0
    found = overlay(image, cam)
    grey = np.array(Image.fromarray(image.permute(1, 2, 0).numpy()).convert("L"))
    assert all(torch.equal(found[0, 16:], channel[16:]) for channel in found)
    assert np.abs(found[0, 16:].numpy().astype(int) - grey[16:]).max() <= 1
    assert (found[0, :16] > found[2, :16]).all()


def test_overlay_is_the_denser_the_higher_the_map() -> None:
    found = overlay(torch.full((3, 1, 32), 128, dtype=torch.uint8), torch.linspace(0, 1, 32)[None])
    tint = (found.amax(dim=0).int() - found.amin(dim=0).int())[0]
    assert tint[0] == 0
    assert (tint.diff() > 0).all()


def rows(count: int = 2, side: int = 32) -> list[GridRow]:
    title = "a domain with quite a long name"
    return [GridRow(title, (picture(side), picture(side)), ("label 3", "p = 0.93"))] * count


@pytest.mark.parametrize(
    ("ending", "start"),
    [(".png", b"\x89PNG"), (".pdf", b"%PDF"), (".svg", b"<?xml"), (".JPG", b"\xff\xd8")],
)
def test_grid_is_written_in_the_format_of_its_ending(
    ending: str, start: bytes, tmp_path: Path
) -> None:
    save_grid(tmp_path / f"grid{ending}", rows(), ["image", "Grad-CAM"])
    assert [path.name for path in tmp_path.iterdir()] == [f"grid{ending}"]
    assert (tmp_path / f"grid{ending}").read_bytes().startswith(start)


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.array(image.convert("RGB")).astype(int)


@pytest.mark.parametrize("columns", [["image", "Grad-CAM"], ["a very long title " * 3] * 2])
def test_nothing_is_cut_at_the_edges_of_a_grid(columns: list[str], tmp_path: Path) -> None:
    save_grid(tmp_path / "grid.png", rows(), columns)
    found = pixels(tmp_path / "grid.png")
    for edge in (found[0], found[-1], found[:, 0], found[:, -1]):
        assert (edge == 255).all()


def test_small_pictures_keep_their_pixels_apart(tmp_path: Path) -> None:
    board = torch.zeros(3, 32, 32, dtype=torch.uint8)
    board[0, (torch.arange(32)[:, None] + torch.arange(32)) % 2 == 0] = 255
    board[2] = 255 - board[0]
    save_grid(tmp_path / "grid.png", [GridRow("", (board,), ("",))], [""])
    red, green, blue = pixels(tmp_path / "grid.png").reshape(-1, 3).T
    drawn = (green == 0) & (red + blue > 0)
    assert drawn.sum() > 200**2
    assert ((red[drawn] == 255) ^ (blue[drawn] == 255)).all()


def test_large_and_oblong_pictures_fit_too(tmp_path: Path) -> None:
    wide = torch.full((3, 100, 300), 90, dtype=torch.uint8)
    save_grid(tmp_path / "grid.png", [*rows(1, 224), GridRow("", (wide, wide), ("", ""))], ["", ""])
    assert pixels(tmp_path / "grid.png").size


def test_grid_that_fails_leaves_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Figure, path: Path, **__: object) -> None:
        path.write_text("half")
        raise OSError("the disk is full")

    (tmp_path / "grid.png").write_text("old")
    monkeypatch.setattr(Figure, "savefig", fails)
    with pytest.raises(OSError, match="the disk is full"):
        save_grid(tmp_path / "grid.png", rows(), ["image", "Grad-CAM"])
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("name", ["grid.gif", "grid"])
def test_unknown_ending_is_named_before_anything_is_written(name: str, tmp_path: Path) -> None:
    ending = Path(name).suffix
    sentence = rf"ends in '{ending}', but .* must be one of .png, .pdf, .svg, .jpg; rename it"
    with pytest.raises(ConfigError, match=sentence):
        save_grid(tmp_path / name, rows(), ["image", "Grad-CAM"])
    assert not list(tmp_path.iterdir())


def test_rows_that_do_not_fill_the_columns_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has 2 pictures and 2 captions for 3 columns; give one"):
        save_grid(tmp_path / "grid.png", rows(), ["image", "Grad-CAM", "other"])
    with pytest.raises(DataError, match="shows nothing; pass at least one"):
        save_grid(tmp_path / "grid.png", [], ["image"])
