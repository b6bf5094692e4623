"""Files to ship put out what the network puts out, or are not written."""

import importlib
import json
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

import cicf
from cicf.core import CicfError, ConfigError
from cicf.models import DigitsCnn, build_model
from cicf.models.export import FACTS, TOLERANCE, Exportable, export_model

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
CLASSES = ("dog", "été", "horse", "house")
ENDINGS = (".pt2", ".onnx")


def tiny_network() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(3), nn.Flatten(), nn.Linear(3 * 8 * 8, len(CLASSES)))


def resnet_with_statistics() -> nn.Module:
    network = build_model("resnet18", num_classes=len(CLASSES), image_size=64)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2)
    return network


def attention_network() -> nn.Module:
    network = importlib.import_module("torchvision.models").VisionTransformer(
        image_size=32,
        patch_size=8,
        num_layers=2,
        num_heads=2,
        hidden_dim=32,
        mlp_dim=64,
        num_classes=len(CLASSES),
    )
    # It starts from zero, where the probabilities depend on no image.
    nn.init.normal_(network.heads.head.weight)
    return network


@dataclass(frozen=True)
class Exported:
    network: nn.Module
    path: Path
    size: int
    difference: float


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "digits": (lambda: DigitsCnn(len(CLASSES)), 32),
    "resnet": (resnet_with_statistics, 64),
    "attention": (attention_network, 32),
}


def export(network: nn.Module, path: Path, *, size: int = 8) -> float:
    return export_model(network, path, image_size=size, mean=MEAN, std=STD, classes=CLASSES)


@pytest.fixture(scope="module", params=[f"{name}{end}" for name in NETWORKS for end in ENDINGS])
def exported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Exported:
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("ship") / request.param
    build, size = NETWORKS[path.stem]
    network = build()
    return Exported(network, path, size, export(network, path, size=size))


def run(path: Path, images: Tensor) -> Tensor:
    if path.suffix == ".onnx":
        onnxruntime = importlib.import_module("onnxruntime")
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (found,) = session.run(["probabilities"], {"images": images.numpy()})
        return torch.from_numpy(found)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return torch.export.load(path).module()(images)


def facts(path: Path) -> dict[str, object]:
    if path.suffix == ".onnx":
        return json.loads({each.key: each.value for each in onnx.load(path).metadata_props}[FACTS])
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(f"{path.stem}/extra/{FACTS}"))


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 7])
def test_file_puts_out_the_softmax_of_the_network_on_normalised_images(
    exported: Exported, n: int
) -> None:
    images = torch.rand(n, 3, exported.size, exported.size)
    normalised = images.clone()
    for channel in range(3):
        normalised[:, channel] = (images[:, channel] - MEAN[channel]) / STD[channel]
    with torch.no_grad():
        expected = exported.network.eval()(normalised).softmax(1)
    assert expected.amax() < 0.999
    torch.testing.assert_close(run(exported.path, images), expected, atol=1e-5, rtol=0)


@pytest.mark.slow
def test_probabilities_sum_to_one(exported: Exported) -> None:
    found = run(exported.path, torch.rand(3, 3, exported.size, exported.size))
    torch.testing.assert_close(found.sum(1), torch.ones(3))


@pytest.mark.slow
def test_difference_that_is_returned_is_small(exported: Exported) -> None:
    assert 0 <= exported.difference < TOLERANCE / 10


@pytest.mark.slow
def test_classes_and_image_size_can_be_read_from_the_file(exported: Exported) -> None:
    found = facts(exported.path)
    assert (found["classes"], found["image_size"]) == (list(CLASSES), exported.size)
    assert "RGB, float32 in [0, 1]" in found["input"]


@pytest.mark.slow
def test_file_is_one_and_nothing_is_left_beside_it(exported: Exported) -> None:
    assert list(exported.path.parent.iterdir()) == [exported.path]


@pytest.mark.slow
def test_file_holds_no_path_of_the_machine(exported: Exported) -> None:
    content = [exported.path.read_bytes()]
    if exported.path.suffix == ".pt2":
        with zipfile.ZipFile(exported.path) as archive:
            content = [archive.read(name) for name in archive.namelist()]
    places = (Path(cicf.__file__).parent, Path(torch.__file__).parent, Path(__file__).parent)
    assert not any(str(place).encode() in each for each in content for place in places)


def test_facts_of_a_program_come_with_it_as_torch_reads_them(tmp_path: Path) -> None:
    export(tiny_network(), tmp_path / "a.pt2")
    found = {FACTS: ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        torch.export.load(tmp_path / "a.pt2", extra_files=found)
    assert json.loads(found[FACTS]) == facts(tmp_path / "a.pt2")


def test_exportable_normalises_and_returns_probabilities() -> None:
    network = nn.Sequential(nn.Flatten(), nn.Linear(3, 4))
    images = torch.rand(5, 3, 1, 1)
    logits = network((images - torch.tensor([[[[0.1]], [[0.2]], [[0.3]]]])) / 0.5)
    found = Exportable(network, (0.1, 0.2, 0.3), (0.5, 0.5, 0.5))(images)
    torch.testing.assert_close(found, logits.exp() / logits.exp().sum(1, keepdim=True))


class BranchesOnData(nn.Module):
    """Is taken by no exporter, as its graph depends on its images."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny_network()

    def forward(self, x: Tensor) -> Tensor:
        logits = self.network(x)
        return logits if logits.sum() > 0 else -logits


class ExportsWrongly(nn.Module):
    """Computes something else while it is exported."""

    def __init__(self) -> None:
        super().__init__()
        self.network = tiny_network()

    def forward(self, x: Tensor) -> Tensor:
        logits = self.network(x)
        return -logits if torch.compiler.is_compiling() else logits


each_ending = pytest.mark.parametrize(
    "ending", [".pt2", pytest.param(".onnx", marks=pytest.mark.slow)]
)


@each_ending
def test_export_is_silent(ending: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    export(tiny_network(), tmp_path / f"a{ending}")
    with pytest.raises(CicfError):
        export(BranchesOnData(), tmp_path / f"b{ending}")
    assert capfd.readouterr() == ("", "")


FAILS_IN_A_FRESH_PROCESS = """
import pathlib, sys
from cicf.core import CicfError
from cicf.models.export import export_model
from torch import nn

class BranchesOnData(nn.Module):
    def forward(self, x):
        return x.mean((2, 3)) if x.sum() > 0 else x.amax((2, 3))

path, half = pathlib.Path(sys.argv[1]), (0.5, 0.5, 0.5)
try:
    export_model(BranchesOnData(), path, image_size=8, mean=half, std=half, classes="abc")
except CicfError:
    print("refused")
"""


@pytest.mark.slow
def test_export_that_fails_logs_nothing(tmp_path: Path) -> None:
    # In a process of its own, as torch logs to the stream that was standard error at its import.
    command = [sys.executable, "-c", FAILS_IN_A_FRESH_PROCESS, str(tmp_path / "a.pt2")]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == ("refused\n", "")


@each_ending
@pytest.mark.parametrize("wrapper", [nn.Sequential, lambda network: BranchesOnData()])
def test_each_part_is_left_in_its_mode(
    ending: str, wrapper: Callable[[nn.Module], nn.Module], tmp_path: Path
) -> None:
    network = wrapper(tiny_network())
    next(part for part in network.modules() if isinstance(part, nn.BatchNorm2d)).eval()
    before = {name: part.training for name, part in network.named_modules()}
    statistics = {name: value.clone() for name, value in network.named_buffers()}
    try:
        export(network, tmp_path / f"a{ending}")
    except CicfError:
        assert isinstance(network, BranchesOnData)
    assert {name: part.training for name, part in network.named_modules()} == before
    assert all(torch.equal(statistics[name], value) for name, value in network.named_buffers())


@each_ending
def test_network_that_cannot_be_exported_says_why_and_leaves_the_old_file(
    ending: str, tmp_path: Path
) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"old")
    other = {".pt2": ".onnx", ".onnx": ".pt2"}[ending]
    sentence = rf"^the network cannot be written as {ending} \(.*data-dependent.*\); .*{other}$"
    with pytest.raises(CicfError, match=sentence):
        export(BranchesOnData(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@each_ending
def test_file_that_differs_from_the_network_is_refused(ending: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{ending}"
    path.write_bytes(b"old")
    with pytest.raises(CicfError, match=r"was not kept: .* differ .* by [\d.]+e-\d+, more than 1e"):
        export(ExportsWrongly(), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_probabilities_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    network = tiny_network()
    nn.init.constant_(network[2].weight, float("nan"))
    with pytest.raises(CicfError, match="differ from the network's by nan"):
        export(network, tmp_path / "a.pt2")
    assert list(tmp_path.iterdir()) == []


def test_old_file_is_replaced_by_a_checked_one(tmp_path: Path) -> None:
    path = tmp_path / "a.pt2"
    path.write_bytes(b"old")
    export(tiny_network(), path)
    assert run(path, torch.rand(2, 3, 8, 8)).shape == (2, len(CLASSES))


def test_interrupted_export_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object, path: Path, **_options: object) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.export, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        export(tiny_network(), tmp_path / "a.pt2")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_missing_package_says_how_to_install_it(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ConfigError, match=r"needs onnx, .*: pip install 'cicf\[onnx\]'$"):
        export(tiny_network(), tmp_path / "a.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("a.pth", r"a\.pth ends in '\.pth', .*: \.pt2 or \.onnx$"),
        ("a", "a ends in '', "),
        ("nowhere/a.pt2", r"nowhere/a\.pt2 lies in a folder that does not exist; name a file"),
        ("folder.pt2", r"folder\.pt2 is a folder; name a file"),
    ],
)
def test_wrong_paths_are_named(name: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "folder.pt2").mkdir()
    with pytest.raises(ConfigError, match=sentence):
        export(tiny_network(), tmp_path / name)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"std": (0.5, 0.0, 0.5)}, "each of its values must be above 0"),
        (
            {"classes": ("dog", "cat")},
            r"logits of shape \[1, 4\] for 1 images, but classes names 2",
        ),
        ({"image_size": 9}, "no logits for images of 9 pixels .*; pass a classifier and the image"),
        ({"network": tiny_network().double()}, "0.weight is torch.float64 on cpu, but"),
        ({"network": tiny_network().to("meta")}, "0.weight is torch.float32 on meta, but"),
        ({"network": nn.Identity()}, "returns"),
    ],
)
def test_values_that_do_not_fit_are_named(
    options: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    values = {"network": tiny_network(), "image_size": 8, "classes": CLASSES, "std": STD}
    with pytest.raises(ConfigError, match=sentence):
        export_model(path=tmp_path / "a.pt2", mean=MEAN, **{**values, **options})
    assert list(tmp_path.iterdir()) == []
