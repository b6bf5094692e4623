"""The commands, from the words of a user to what is printed and written."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file
from tests.support.runs import (
    SIZE,
    TINY,
    Ended,
    contents,
    folder_of_images,
    run_cli,
    tiny_net,
    train,
)
from typer.main import get_command

import cicf
from cicf.cli.app import app
from cicf.cli.options import config_of
from cicf.methods import METHODS
from cicf.training.checkpoint import Checkpoints

ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.executable).with_name("cicf")
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
CLASSES = ("cat", "dog", "owl")
PARAMETERS = ("theta", "theta_dagger")
TRAINED = ("--target", "sketch", "--seed", 1, "--epochs", 3)
HALF_WAY = ("optim.lr=0.02", "method.alpha=1", "method.max_step_ratio=inf")
"""What stops training where θ and θ†, the last and the best epoch still score differently."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `images` of three domains, and the `run` of CICF that held one out."""
    root = tmp_path_factory.mktemp("commands")
    images = folder_of_images(root / "images", ("art", "photo", "sketch"), CLASSES, 6)
    settings = [word for setting in HALF_WAY for word in ("--set", setting)]
    ended = train(images, root / "run", *TRAINED, *settings, "--json")
    assert ended.code == 0, ended.err
    (root / "printed.json").write_text(ended.out)
    return root


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run" / "result.json").read_text())
    return found


def image(folder: Path, name: str = "dog") -> Path:
    return folder / "images" / "sketch" / name / "03.png"


def printed(ended: Ended) -> Any:
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def test_train_prints_the_record_that_it_leaves(folder: Path) -> None:
    record = json.loads((folder / "printed.json").read_text())
    assert record.pop("folder") == str(folder / "run")
    assert record == result(folder)
    assert record["setup"]["protocol"]["tested"] == ["sketch"]
    assert record["config"]["model"]["name"] == TINY


def test_train_leaves_a_model_and_no_checkpoints(folder: Path) -> None:
    assert set(contents(folder / "run")) == {
        "config.json",
        "metrics.jsonl",
        "model.safetensors",
        "result.json",
        "setup.json",
        *(f"weights/{at}-{p}.safetensors" for at in ("best", "last") for p in PARAMETERS),
    }


def test_train_prints_a_table_with_the_accuracies_of_the_record(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", ("art", "photo"), CLASSES, 4)
    ended = train(images, tmp_path / "run", "--target", "photo")
    record = result(tmp_path)
    for at, name in (("last", "last epoch"), ("best", "best validation")):
        for parameters, symbol in (("theta", "θ"), ("theta_dagger", "θ†")):
            counts = (record[at][part][parameters] for part in ("validation", "test"))
            validation, test = (
                f"{100 * c['correct'] / c['total']:.1f}" for d in counts for c in d.values()
            )
            (row,) = [line for line in ended.out.splitlines() if f"{name} (1) at {symbol} " in line]
            assert row.replace("*", "").split("│")[2:4] == [f" {validation:>17} ", f" {test:>5} "]
    assert f"* is stored in {tmp_path / 'run' / 'model.safetensors'}\n" in ended.out


def test_training_tells_plain_lines_where_there_is_no_terminal(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 4)
    ended = train(images, tmp_path / "run", "--method", "erm", "--epochs", 3)
    lines = ended.err.splitlines()
    assert lines[0] == f"run in {tmp_path / 'run'}"
    assert lines[1] == "3 classes; training images: all 9"
    assert [line.split(":")[0] for line in lines[2:]] == ["note", "epoch 1", "epoch 2", "epoch 3"]
    assert "\x1b" not in ended.err + ended.out


@pytest.mark.parametrize(("bound", "is_told"), [("1.5", True), ("0.9", False)])
def test_a_virtual_step_that_is_longer_than_theta_is_told_once(
    bound: str, is_told: bool, tmp_path: Path
) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 4)
    settings = ("log_every=1", "method.alpha=1000", f"method.max_step_ratio={bound}")
    options = (word for each in settings for word in ("--set", each))
    ended = train(images, tmp_path / "run", "--epochs", 3, *options)
    told = [line for line in ended.err.splitlines() if "1.5 times as long as θ" in line]
    assert len(told) == is_told
    assert all("lower method.alpha" in line for line in told)


def test_run_without_a_name_is_named_after_data_target_method_and_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder_of_images(tmp_path / "pets", ("art", "photo"), CLASSES, 3)
    monkeypatch.chdir(tmp_path)
    words = ("--target", "art", "--method", "erm", "--epochs", 1, "--seed", 3)
    small = ("--model", TINY, "--set", f"data.image_size={SIZE}")
    record = printed(run_cli("train", "pets", *words, *small, "--json"))
    assert record["run_id"].startswith("pets-art-erm-3-")
    assert record["folder"] == f"runs/{record['run_id']}"
    assert (tmp_path / record["folder"] / "result.json").exists()


def test_root_names_the_folder_that_data_lie_in(tmp_path: Path) -> None:
    folder_of_images(tmp_path / "all" / "pets", (), CLASSES, 3)
    ended = train(Path("pets"), tmp_path / "run", "--root", tmp_path / "all", "--method", "erm")
    assert ended.code == 0


def test_file_gives_way_to_named_options_and_these_to_settings(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 3)
    file = tmp_path / "own.toml"
    file.write_text("epochs = 2\nseed = 3\n[method]\nname = 'erm'\n[optim]\nlr = 0.2\nclip = 3.0\n")
    words = ("--config", file, "--seed", 4, "--set", "seed=5", "--set", "optim.lr=0.3")
    assert train(images, tmp_path / "run", *words).code == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["method"]["name"], config["optim"]["clip"]) == ("erm", 3.0)
    assert (config["epochs"], config["seed"], config["optim"]["lr"]) == (1, 5, 0.3)


@pytest.mark.parametrize("at", ["last", "best"])
def test_eval_on_its_own_target_gives_the_stored_accuracy(folder: Path, at: str) -> None:
    rows = printed(run_cli("eval", folder / "run", folder / "images", "--checkpoint", at, "--json"))
    assert [row["domain"] for row in rows] == ["art", "photo", "sketch", "all images"]
    stored = result(folder)[at]["test"]["theta_dagger"]["sketch"]
    assert {name: rows[2][name] for name in ("correct", "images")} == {
        "correct": stored["correct"],
        "images": stored["total"],
    }
    assert rows[2]["accuracy"] == 100 * stored["correct"] / stored["total"]
    assert rows[3]["correct"] == sum(row["correct"] for row in rows[:3])


def test_eval_prints_a_table(folder: Path) -> None:
    ended = run_cli("eval", folder / "run", folder / "images")
    stored = result(folder)["last"]["test"]["theta_dagger"]["sketch"]
    (row,) = [line for line in ended.out.splitlines() if line.startswith("│ sketch ")]
    assert row.split("│")[2].strip() == "18"
    assert row.split("│")[3].strip() == f"{100 * stored['correct'] / 18:.1f}"


def test_eval_tells_which_domains_it_was_trained_on(folder: Path, tmp_path: Path) -> None:
    note = "note: it was trained on most images of art, photo; accuracy there is no test\n"
    assert note in run_cli("eval", folder / "run", folder / "images").out
    others = folder_of_images(tmp_path / "images", ("art", "photo"), CLASSES, 2)
    assert "note" not in run_cli("eval", folder / "run", others).out


def test_eval_matches_classes_by_name(folder: Path, tmp_path: Path) -> None:
    """Two of the three classes, whose numbers in this folder are others than in training."""
    for name in ("dog", "owl"):
        (tmp_path / name).mkdir()
        for file in (folder / "images" / "sketch" / name).iterdir():
            (tmp_path / name / file.name).write_bytes(file.read_bytes())
    (row,) = printed(run_cli("eval", folder / "run", tmp_path, "--json"))
    files = [file for name in ("dog", "owl") for file in sorted((tmp_path / name).iterdir())]
    predicted = printed(run_cli("predict", folder / "run", *files, "--json"))
    right = sum(each["class"] == Path(each["image"]).parent.name for each in predicted)
    assert (row["correct"], row["images"]) == (right, 12)


def test_domain_called_all_keeps_its_own_score(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", ("all", "art"), CLASSES, 3)
    train(images, tmp_path / "run", "--method", "erm")
    rows = printed(run_cli("eval", tmp_path / "run", images, "--json"))
    assert [(row["domain"], row["images"]) for row in rows] == [
        ("all", 9),
        ("art", 9),
        ("all images", 18),
    ]


def pixels(path: Path) -> torch.Tensor:
    with Image.open(path) as opened:
        return torch.from_numpy(np.array(opened)).permute(2, 0, 1) / 255


def softmax_of(folder: Path, path: Path) -> list[float]:
    """Return the probabilities by what stands in the model's file alone."""
    file = folder / "run" / "model.safetensors"
    with safe_open(file, "pt") as opened:
        facts = json.loads(opened.metadata()["cicf"])
    network = tiny_net(len(facts["classes"]))
    network.load_state_dict(load_file(file))
    mean, std = (torch.tensor(facts[name]).view(3, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        logits: torch.Tensor = network(((pixels(path) - mean) / std)[None])
    return logits.softmax(dim=1)[0].tolist()


def test_predict_gives_the_softmax_of_the_stored_model(folder: Path) -> None:
    files = [image(folder, name) for name in CLASSES]
    rows = printed(run_cli("predict", folder / "run", *files, "--json"))
    assert [row["image"] for row in rows] == [str(file) for file in files]
    for row, file in zip(rows, files, strict=True):
        expected = softmax_of(folder, file)
        assert row["confidence"] == pytest.approx(max(expected), abs=1e-6)
        assert row["class"] == CLASSES[expected.index(max(expected))]


def test_predict_prints_a_table(folder: Path) -> None:
    (row,) = printed(run_cli("predict", folder / "run", image(folder), "--json"))
    ended = run_cli("predict", folder / "run", image(folder))
    assert f" {row['class']} " in ended.out
    assert f" {100 * row['confidence']:.1f} % " in ended.out


def odd_images(folder: Path) -> list[Path]:
    stream = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (20, 30, 3), generator=stream, dtype=torch.uint8)
    photo = Image.fromarray(noise.numpy())
    turned = photo.getexif()
    turned[0x0112] = 6
    photo.convert("L").save(folder / "grey.png")
    photo.convert("CMYK").save(folder / "print.jpg")
    photo.convert("RGBA").save(folder / "transparent.png")
    photo.save(folder / "turned.jpg", exif=turned)
    photo.save(folder / "moving.gif", save_all=True, append_images=[photo.rotate(90)])
    Image.new("I;16", (20, 30)).save(folder / "deep.png")
    Image.new("RGB", (1, 300)).save(folder / "thin.png")
    return sorted(folder.iterdir())


def test_images_of_any_kind_and_size_are_predicted(folder: Path, tmp_path: Path) -> None:
    files = odd_images(tmp_path)
    rows = printed(run_cli("predict", folder / "run", *files, "--json"))
    assert len(rows) == len(files) == 7
    assert all(row["class"] in CLASSES and 1 / 3 <= row["confidence"] <= 1 for row in rows)


@pytest.mark.parametrize("words", [(), ("--class", "owl"), ("--layer", "0")])
def test_explain_writes_a_picture(words: tuple[str, ...], folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "looks.png"
    ended = run_cli("explain", folder / "run", image(folder), image(folder), "-o", output, *words)
    assert ended == Ended(0, f"wrote {output}\n", "")
    with Image.open(output) as picture:
        picture.load()
        assert min(picture.size) > 300


def test_export_writes_a_file_that_agrees(folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "model.pt2"
    ended = run_cli("export", folder / "run", output)
    assert ended.code == 0
    assert ended.out.startswith(f"wrote {output}; images [n, 3, {SIZE}, {SIZE}] in [0, 1]")
    assert float(ended.out.rpartition("differs by at most ")[2]) <= 1e-4
    found = torch.export.load(output).module()(pixels(image(folder))[None])
    torch.testing.assert_close(found[0], torch.tensor(softmax_of(folder, image(folder))))


def test_methods_are_listed() -> None:
    ended = run_cli("methods")
    rows = printed(run_cli("methods", "--json"))
    assert [row["method"] for row in rows] == list(METHODS)
    for row in rows:
        assert row["method"] in ended.out
        assert row["what it does"]
        about = METHODS[row["method"]].about
        assert row["domain labels"] == ("yes" if about.needs_domains else "no")
        assert row["extra networks"] == about.extra_networks
        assert (row["order"], row["reference"]) == (str(about.order), about.reference)


def test_a_cost_that_was_not_measured_is_a_dash(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"erm": 1.0, "maml": None, "cicf": 13.87}
    for name, cost in costs.items():
        monkeypatch.setattr(METHODS[name], "about", METHODS[name].about._replace(cost=cost))
    rows = {row["method"]: row["cost against ERM"] for row in printed(run_cli("methods", "--json"))}
    assert {name: rows[name] for name in costs} == {"erm": "1", "maml": "–", "cicf": "14"}


def test_a_base_and_an_average_are_options_of_train(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "photos", ("art", "photo"), ("cat", "dog"), 6)
    ended = train(images, tmp_path / "run", "--base", "erm", "--average", "swad", "--json")
    assert ended.code == 0, ended.err
    config = printed(ended)["config"]
    assert config["method"]["base"]["name"] == "erm"
    assert config["average"]["name"] == "swad"
    assert any("SWAD" in note for note in printed(ended)["setup"]["notes"])
    assert "CICF" in (out := run_cli("table", tmp_path / "run").out)
    assert "+ erm + SWAD" in " ".join(out.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--method", "erm", "--base", "erm"), "method.base='erm' belongs to the method 'cicf'"),
        (("--base", "ermm"), "method.base.name='ermm' is not known"),
        (("--base", "maml"), "method.base='maml' is more than a loss of one batch"),
        (("--average", "swat"), "average.name='swat' cannot be"),
    ],
)
def test_a_wrong_base_or_average_is_refused(
    tmp_path: Path, words: tuple[str, ...], sentence: str
) -> None:
    images = folder_of_images(tmp_path / "photos", ("art", "photo"), ("cat", "dog"), 6)
    ended = train(images, tmp_path / "run", *words)
    assert ended.code == 2
    assert sentence in ended.err


@pytest.mark.parametrize("name", METHODS)
def test_options_of_a_method_are_listed_with_their_defaults(name: str) -> None:
    rows = printed(run_cli("methods", name, "--json"))
    defaults = METHODS[name](name=name).model_dump()
    assert {row["option, for --set"]: row["default"] for row in rows} == {
        f"method.{field}": json.dumps(value) if isinstance(value, tuple) else str(value)
        for field, value in defaults.items()
        if field != "name"
    }
    assert all(row["meaning"] for row in rows)
    assert "method.deploy" in run_cli("methods", name).out


@pytest.mark.parametrize("method", METHODS)
def test_options_that_are_listed_can_be_set(method: str) -> None:
    rows = printed(run_cli("options", "demo", "--method", method, "--json"))
    settings = [f"{row['option, for --set']}={row['default']}" for row in rows]
    found = config_of("demo", named={}, settings=settings, file=None)
    assert found == cicf.recipe("demo", {"method": {"name": method}})


def test_names_that_look_like_markup_are_printed_as_they_are(tmp_path: Path) -> None:
    names = {"classes": ("[bold]", "dög :cat:"), "domains": ("[red]", "a [b]")}
    root, run = tmp_path / "[i] :dog:", tmp_path / "run [/i] of [/]"
    images = folder_of_images(root, names["domains"], names["classes"], 3)
    ended = train(images, run, "--method", "erm", "--target", "a [b]")
    assert f"run in {run}\n" in ended.err
    assert "training images: [red] 4\n" in ended.err
    assert " a [b] " in ended.out
    assert f"stored in {run / 'model.safetensors'}\n" in ended.out
    assert "│ [red] " in run_cli("eval", run, images).out
    rows = printed(run_cli("predict", run, images / "[red]" / "dög :cat:" / "00.png", "--json"))
    out = run_cli("predict", run, images / "[red]" / "dög :cat:" / "00.png").out
    assert f" {rows[0]['class']} " in out
    ended = run_cli(
        "explain", run, images / "[red]" / "[bold]" / "00.png", "-o", tmp_path / "[/].png"
    )
    assert ended.out == f"wrote {tmp_path / '[/].png'}\n"


def test_every_option_has_a_help_text() -> None:
    commands = get_command(app).commands
    assert {"train", "eval", "predict", "explain", "export", "methods"} <= set(commands)
    for name, command in commands.items():
        assert command.help, name
        assert [param.name for param in command.params if not getattr(param, "help", None)] == []


def test_version_is_the_package_s() -> None:
    assert run_cli("--version") == Ended(0, f"cicf {cicf.__version__}\n", "")


LIGHT = """
import sys
from cicf.cli import main
sys.argv = ["cicf", *sys.argv[1:]]
try:
    main()
finally:
    print("heavy:", sorted({"torch", "torchvision", "sklearn", "numpy"} & set(sys.modules)))
"""


@pytest.mark.parametrize("words", [("--help",), ("train", "--help"), ("--version",)])
def test_help_is_answered_without_torch(words: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", LIGHT, *words]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout.endswith("heavy: []\n")
    assert ("--skip-unreadable" in found.stdout) == (words[0] == "train")
    assert found.stderr == ""


@pytest.mark.slow
def test_installed_command_runs_with_a_network_beside_it_and_without_greek_letters(
    tmp_path: Path,
) -> None:
    folder_of_images(tmp_path / "my images", (), CLASSES, 3)
    (tmp_path / "own.py").write_text("from tests.support.runs import tiny_net as build\n")
    words = ["train", "my images", "--model", "own:build", "--out", "my run", "--epochs", "1"]
    options = ["--method", "erm", "--set", f"data.image_size={SIZE}"]
    found = subprocess.run(
        [SCRIPT, *words, *options],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert "last epoch (1) at ? *" in found.stdout
    assert "* is stored in my run/model.safetensors\n" in found.stdout
    assert (tmp_path / "my run" / "result.json").exists()


@pytest.mark.slow
def test_interrupted_training_says_how_to_go_on(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 3)
    words = ["train", str(images), "--out", str(tmp_path / "run"), "--model", TINY]
    options = ["--method", "erm", "--epochs", "100000", "--set", f"data.image_size={SIZE}"]
    running = subprocess.Popen(
        [SCRIPT, *words, *options], cwd=ROOT, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    )
    with running:
        assert running.stderr is not None
        assert any(line.startswith("epoch 2:") for line in running.stderr)
        running.send_signal(signal.SIGINT)
        last = running.stderr.readlines()[-1]
    assert running.returncode == 130
    assert last.startswith("cicf: stopped; start the same command again")
    saved = Checkpoints(tmp_path / "run" / "checkpoints").newest()
    assert saved is not None
    assert saved.step >= 2
