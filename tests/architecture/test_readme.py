"""Every command and every piece of code in the README runs."""

import io
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.support.runs import run_cli

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)
COMMANDS = [
    line.split("#")[0].strip()
    for kind, text in BLOCKS
    if kind == "sh"
    for line in text.splitlines()
    if line.strip()
]
OWN = [command for command in COMMANDS if command.startswith("cicf ")]
SHORTER = {
    "train": ["--epochs", "1", "--set", "data.image_size=64"],
    "bench": [
        *("--methods", "erm,cicf", "--targets", "photo", "--seeds", "1", "--set", "epochs=1"),
        *("--set", "data.image_size=64", "--set", "outer.size=8", "--set", "inner.size=8"),
    ],
}
"""What makes commands end soon; otherwise they are as printed."""
BENCHMARKS = re.findall(r"`(python benchmarks/[^`]*)`", README)
CODE = [text for kind, text in BLOCKS if kind == "python"]
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "MAKEFLAGS"}


def test_readme_shows_the_two_commands_and_where_its_numbers_come_from() -> None:
    assert {"make demo", "make test"} <= set(COMMANDS)
    assert len(BENCHMARKS) == 2
    assert len(OWN) + 2 == len(COMMANDS)


def test_files_that_the_readme_shows_exist() -> None:
    links = re.findall(r"\]\(([^)#:]+)", README) + re.findall(r'src="([^"]+)"', README)
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def run(words: list[str], folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=folder,
        capture_output=True,
        text=True,
        env={**ENVIRONMENT, **variables},
        check=False,
    )


@pytest.mark.slow
def test_make_demo_ends_with_a_table_and_a_picture(tmp_path: Path) -> None:
    words = ["make", "demo", "EPOCHS=1", f"OUT={tmp_path}"]
    found = run(words, ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
    for method in ("erm", "maml", "cicf"):
        assert re.search(rf"│ {method}\s+│ θ†?\s+│ [\d.]+\s+│ [\d.]+", found.stdout), found.stdout
    with Image.open(tmp_path / "gradcam.png") as picture:
        assert min(picture.size) > 300


def test_make_test_runs_the_checks_and_the_tests() -> None:
    # Resolved only: it would start this very suite.
    found = run(["make", "test", "--dry-run"], ROOT)
    assert found.returncode == 0, found.stderr
    for word in ("ruff format --check", "ruff check", "mypy", "lint-imports", "-m pytest"):
        assert word in found.stdout


@pytest.mark.slow
def test_commands_run_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = torch.Generator().manual_seed(0)
    for domain in ("photo", "sketch"):
        for label in ("cat", "dog"):
            (tmp_path / "photos" / domain / label).mkdir(parents=True)
            for number in range(6):
                pixels = torch.randint(256, (40, 50, 3), generator=stream, dtype=torch.uint8)
                path = tmp_path / "photos" / domain / label / f"{number}.jpg"
                Image.fromarray(pixels.numpy()).save(path)
    Image.fromarray(pixels.numpy()).save(tmp_path / "new.jpg")
    downloaded_weights(tmp_path / "home")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    write_pacs(tmp_path / "PACS.zip")
    for command in OWN:
        words = [*command.split(), *SHORTER.get(command.split()[1], ())]
        ended = run_cli(*words[1:])
        # Of PACS there are a few images only, which is what verify is for.
        expected = 1 if "verify" in words else 0
        assert ended.code == expected, (command, ended)
    for name in ("looks.png", "model.onnx", "runs/first/model.safetensors", "figures/gains.svg"):
        assert (tmp_path / name).stat().st_size > 0
    assert len(list((tmp_path / "runs" / "pacs").glob("pacs-*/result.json"))) == 2


def write_pacs(path: Path) -> None:
    """Write an archive like that of PACS, with three images of every class of every domain."""
    content = io.BytesIO()
    Image.new("RGB", (40, 40), (90, 120, 30)).save(content, "jpeg")
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    with zipfile.ZipFile(path, "w") as archive:
        for domain in ("art_painting", "cartoon", "photo", "sketch"):
            for label in classes:
                for number in range(3):
                    archive.writestr(f"PACS/{domain}/{label}/{number}.jpg", content.getvalue())


def downloaded_weights(home: Path) -> None:
    """Put weights where torchvision keeps what it downloaded; here they are random ones."""
    from cicf.models import build_model

    torch.manual_seed(0)
    network = build_model("resnet18", num_classes=1000, image_size=64).network
    folder = home / "hub" / "checkpoints"
    folder.mkdir(parents=True)
    torch.save(network.state_dict(), folder / "resnet18-f37072fd.pth")


def test_benchmarks_that_the_readme_names_exist() -> None:
    assert [command for command in BENCHMARKS if not (ROOT / command.split()[1]).exists()] == []


@pytest.mark.slow
@pytest.mark.parametrize("is_whole", [True, False])
def test_code_runs_in_the_order_it_is_shown(is_whole: bool, tmp_path: Path) -> None:
    """Blocks that train by themselves run as they are, the others after a model and data."""
    preamble = (Path(__file__).parent / "readme_preamble.py").read_text()
    blocks = [code for code in CODE if ("cicf.train(" in code) is is_whole]
    assert blocks
    program = "\n".join(blocks if is_whole else [preamble, *blocks])
    found = run([sys.executable, "-c", program], tmp_path)
    assert found.returncode == 0, found.stderr
