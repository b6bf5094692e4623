"""What a user can get wrong: one sentence, exit code 2, and nothing on the disk has changed."""

import json
import os
from pathlib import Path

import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tests.support.runs import Ended, contents, folder_of_images, run_cli, tiny_net, train
from torch import nn

CLASSES = ("cat", "dog")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder with two domains of two classes."""
    return folder_of_images(tmp_path / "images", ("art", "photo"), CLASSES, 6)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return where a run would be."""
    return tmp_path / "run"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that has ended; no test may change it."""
    root = tmp_path_factory.mktemp("finished")
    images = folder_of_images(root / "images", (), CLASSES, 6)
    assert train(images, root / "run", "--method", "erm").code == 0
    return root / "run"


@pytest.fixture(scope="module")
def unfinished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run that stopped before its first epoch ended."""
    root = tmp_path_factory.mktemp("unfinished")
    images = folder_of_images(root / "images", (), CLASSES, 6)
    options = ("--method", "erm", "--set", "optim.lr=1e30", "--set", "machine.checkpoint_every=1")
    assert train(images, root / "run", *options).code == 2
    return root / "run"


def one_image(finished: Path) -> Path:
    return finished.parent / "images" / "cat" / "00.png"


def assert_refused(ended: Ended, *parts: object) -> None:
    """Assert that all that was printed is one sentence with these parts."""
    assert ended.code == 2
    assert ended.out == ""
    assert ended.err.startswith("cicf: ")
    assert ended.err.count("\n") == 1
    assert ended.err.endswith("\n")
    for part in parts:
        assert str(part) in ended.err


def test_missing_folder_is_refused(tmp_path: Path, run: Path) -> None:
    ended = train(tmp_path / "nowhere", run)
    assert_refused(ended, tmp_path / "nowhere", "is no folder", "name a folder with class/image")
    assert not run.exists()


def test_misspelt_data_set_is_guessed(run: Path) -> None:
    assert_refused(run_cli("train", "demmo", "--out", run), "'demmo'", "did you mean 'demo'?")


def test_file_instead_of_a_folder_is_refused(tmp_path: Path, run: Path) -> None:
    file = tmp_path / "images.zip"
    file.write_bytes(b"PK")
    assert_refused(train(file, run), file, "is no folder")


def test_empty_folder_is_refused(tmp_path: Path, run: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert_refused(train(empty, run), empty, "holds no images", ".png")
    assert not run.exists()


def test_class_with_one_image_is_refused(tmp_path: Path, run: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 3)
    folder_of_images(images, (), ("bird",), 1)
    assert_refused(train(images, run), "'bird'", "has one image", "at least two")
    assert not run.exists()


def test_domains_of_one_image_a_class_leave_none_to_validate_with(
    tmp_path: Path, run: Path
) -> None:
    images = folder_of_images(tmp_path / "images", ("art", "photo"), CLASSES, 1)
    assert_refused(train(images, run), images, "no image", "validate", "at least two")
    assert not run.exists()


def test_one_class_only_is_refused(tmp_path: Path, run: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), ("cat",), 3)
    assert_refused(train(images, run), "one class only, 'cat'", "at least two")
    assert not run.exists()


def unreadable(path: Path) -> Path:
    path.write_text("no image")
    return path


def truncated(path: Path) -> Path:
    noise = torch.randint(256, (64, 64, 3), dtype=torch.uint8)
    Image.fromarray(noise.numpy()).save(path)
    path.write_bytes(path.read_bytes()[:4000])
    return path


@pytest.mark.parametrize("broken", [unreadable, truncated])
def test_broken_image_is_named(broken: object, images: Path, run: Path) -> None:
    bad = broken(images / "art" / "cat" / "bad.png")
    assert_refused(train(images, run), bad, "1 of 25 images", "--skip-unreadable")
    assert not run.exists()


def test_broken_images_are_left_out_counted_and_listed_when_asked(images: Path, run: Path) -> None:
    text = unreadable(images / "art" / "cat" / "text.png")
    half = truncated(images / "photo" / "dog" / "half.png")
    ended = train(images, run, "--method", "erm", "--skip-unreadable")
    assert ended.code == 0
    assert ended.err.startswith(f"left out 2 of 26 images, unreadable:\n  {text}\n  {half}\n")
    setup = json.loads((run / "setup.json").read_text())
    assert setup["sources"] == {"art": 10, "photo": 10}
    assert setup["validation"] == {"art": 2, "photo": 2}


def test_unknown_target_is_refused(images: Path, run: Path) -> None:
    ended = train(images, run, "--target", "phto")
    assert_refused(ended, "data.target='phto'", "did you mean 'photo'?")
    assert not run.exists()


def test_target_in_a_folder_without_domains_is_refused(tmp_path: Path, run: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 3)
    ended = train(images, run, "--target", "art")
    assert_refused(ended, "data.target='art'", "one domain only", "domain/class/image.jpg")


def test_unknown_method_is_refused(images: Path, run: Path) -> None:
    ended = train(images, run, "--method", "cicff")
    assert_refused(ended, "method.name='cicff'", "did you mean 'cicf'?")
    assert not run.exists()


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("method.alhpa=0.1", ("method.alhpa is no option", "did you mean 'method.alpha'")),
        ("optim.leraning_rate=0.1", ("optim.leraning_rate is no option", "'optim.lr'")),
        ("optm.lr=0.1", ("optm is no option", "did you mean 'optim.lr'")),
        ("epoch=3", ("epoch is no option", "did you mean 'epochs'")),
        ("method.alpha", ("--set 'method.alpha'", "must be name=value", "method.alpha=0.1")),
        ("=3", ("--set '=3'", "must be name=value")),
        ("method=erm", ("method='erm'", "set method.name")),
        ("data=photos", ("data='photos'", "data.target")),
        ("data.name=photos", ("data.name='photos'", "leave it out")),
        ("epochs=0", ("epochs=0", "greater than 0")),
        ("epochs=many", ("epochs='many'", "valid integer")),
        ("data.image_size=100000000", ("data.image_size=100000000", "less than or equal to 4096")),
        ("inner.size=-1", ("inner.size=-1", "greater than 0")),
        ("outer.size=0", ("outer.size=0", "greater than 0")),
        ("data.image_size=0", ("data.image_size=0", "greater than 0")),
        ("data.validation=1", ("data.validation=1", "less than 1")),
        ("data.augment=strong", ("data.augment='strong'", "'basic'")),
        ("clusters.per_class=-1", ("clusters.per_class=-1", "greater than 0", "or", "'auto'")),
        ("method.alpha=-1", ("method.alpha=-1", "greater than or equal to 0")),
        ("method.alpha=nan", ("method.alpha=nan", "greater than or equal to 0")),
        ("optim.lr=0", ("optim.lr=0", "greater than 0")),
        ("seed=-1", ("seed=-1", "greater than or equal to 0")),
        ("inner.size=23", ("inner.size=23", "larger than the training set", "20 images")),
        ("outer.size=23", ("outer.size=23", "larger than the training set", "20 images")),
        ("model.cut=2", ("model.cut=2", "must be a text", "quote it")),
        ("model.cut=9.conv", ("cut='9.conv'", "no module of the network", "'input'")),
        ("clusters.warmup=1", ("warmup=1", "source='network'")),
    ],
)
def test_setting_that_cannot_be_is_refused(
    setting: str, parts: tuple[str, ...], images: Path, run: Path
) -> None:
    assert_refused(train(images, run, "--set", setting), *parts)
    assert not run.exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[method]\nalhpa = 0.1", ("method.alhpa is no option", "did you mean 'method.alpha'")),
        ("[methods]\nalpha = 0.1", ("methods is no option", "did you mean 'method.name'")),
        ("[method\nalpha = 0.1", ("is no TOML", "line 1", "repair it")),
        ("[data]\nname = 'photos'", ("data.name='photos'", "leave it out")),
        ("method = 'erm'", ("method='erm'", "set method.name")),
    ],
)
def test_config_file_that_cannot_be_is_refused(
    text: str, parts: tuple[str, ...], images: Path, run: Path, tmp_path: Path
) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    assert_refused(train(images, run, "--config", file), *parts)
    assert not run.exists()


def test_missing_config_file_is_refused(images: Path, run: Path, tmp_path: Path) -> None:
    ended = train(images, run, "--config", tmp_path / "own.toml")
    assert_refused(ended, tmp_path / "own.toml", "is no file", "name a TOML file")


@pytest.mark.parametrize(
    ("model", "parts"),
    [
        ("resnet8", ("model='resnet8'", "did you mean 'resnet18'")),
        ("house", ("model='house'", "choose one of", "torchvision")),
        ("no.such:net", ("model='no.such:net'", "package.module:name")),
        ("tests.support.runs:net", ("model='tests.support.runs:net'", "no attribute 'net'")),
        ("tests.support.runs:SIZE", ("model='tests.support.runs:SIZE'", "is not a function")),
    ],
)
def test_unknown_model_is_refused(
    model: str, parts: tuple[str, ...], images: Path, run: Path
) -> None:
    ended = run_cli("train", images, "--out", run, "--model", model, "--weights", "none")
    assert_refused(ended, *parts)
    assert not run.exists()


def test_image_size_that_the_network_cannot_take_is_refused(images: Path, run: Path) -> None:
    ended = train(images, run, "--set", "data.image_size=2")
    assert_refused(ended, "images of 2 pixels", "use another image size")
    assert not run.exists()


def test_unknown_device_is_refused(images: Path, run: Path) -> None:
    ended = train(images, run, "--device", "gpu")
    assert_refused(ended, "machine.device='gpu'", "'auto', 'cpu', 'cuda' or 'mps'")
    assert not run.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_missing_gpu_is_refused(images: Path, run: Path) -> None:
    ended = train(images, run, "--device", "cuda")
    assert_refused(ended, "machine.device='cuda' is not there", "use 'auto' or 'cpu'")
    assert not run.exists()


def test_unknown_device_is_refused_for_a_trained_network(finished: Path) -> None:
    ended = run_cli("predict", finished, one_image(finished), "--device", "gpu")
    assert_refused(ended, "machine.device='gpu'", "'auto', 'cpu', 'cuda' or 'mps'")


@pytest.mark.parametrize("method", ["erm", "cicf", "maml"])
def test_default_batches_shrink_to_a_hundred_images_and_say_so(
    method: str, tmp_path: Path, run: Path
) -> None:
    domains = ("art", "photo") if method == "maml" else ()
    images = folder_of_images(tmp_path / "images", domains, CLASSES, 25 if domains else 50)
    ended = train(images, run, "--method", method, "--set", "inner.most=256")
    assert ended.code == 0
    setup = json.loads((run / "setup.json").read_text())
    assert f"note: outer.size is {setup['outer_size']} instead of 84" in ended.err
    assert ("note: inner.size is" in ended.err) == (method != "erm")
    assert method == "erm" or f"inner.size is {setup['inner_size']} instead of 256" in ended.err
    assert sum(setup["sources"].values()) + sum(setup["validation"].values()) == 100
    assert (run / "result.json").exists()


def test_maml_on_a_folder_without_domains_is_refused(tmp_path: Path, run: Path) -> None:
    images = folder_of_images(tmp_path / "images", (), CLASSES, 6)
    ended = train(images, run, "--method", "maml")
    assert_refused(ended, "domain", "domain/class/image.jpg", "cicf")
    assert not run.exists()


def test_batches_that_the_domains_cannot_fill_are_refused(images: Path, run: Path) -> None:
    sizes = ("--set", "inner.size=12", "--set", "outer.size=12")
    ended = train(images, run, "--method", "maml", *sizes)
    assert_refused(ended, "12 images", "one has 10", "make inner.size or outer.size smaller")
    assert not run.exists()


@pytest.mark.parametrize("method", ["erm", "cicf"])
def test_loss_that_is_not_finite_stops_at_a_good_checkpoint(
    method: str, images: Path, run: Path
) -> None:
    words = ("--method", method, "--set", "optim.lr=1e30", "--set", "machine.checkpoint_every=1")
    ended = train(images, run, *words)
    assert ended.code == 2
    assert "Traceback" not in ended.err
    sentence = ended.err.splitlines()[-1]
    assert sentence.startswith("cicf: the loss is ")
    assert "in step 2" in sentence
    assert f"the checkpoint after step 1 is kept in {run}" in sentence
    assert "lower optim.lr" in sentence
    assert not (run / "result.json").exists()
    before = contents(run)
    resumed = train(images, run, *words, "--resume")
    assert "goes on after step 1\n" in resumed.err
    assert resumed.err.splitlines()[-1] == sentence
    assert contents(run) == before


def other_net() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(5, 2))


def wide_net() -> dict[str, torch.Tensor]:
    weights = tiny_net(2).state_dict()
    return {**weights, "2.weight": torch.zeros(9, 4, 3, 3)}


@pytest.mark.parametrize(
    ("name", "weights", "parts"),
    [
        ("a.safetensors", wide_net, ("'2.weight'", "[9, 4, 3, 3]", "[8, 4, 3, 3]", "another")),
        ("a.pth", wide_net, ("'2.weight'", "[9, 4, 3, 3]", "[8, 4, 3, 3]", "another")),
        ("a.pth", lambda: other_net().state_dict(), ("'0.weight'", "another network")),
        ("a.pth", lambda: {"stem.weight": torch.zeros(1)}, ("'stem.weight'", "no place for")),
        ("a.pth", lambda: [1, 2], ("holds no state dict", "torch.save(model.state_dict()")),
    ],
    ids=["shape", "shape of .pth", "network", "name", "no state dict"],
)
def test_weights_that_do_not_fit_are_refused(
    name: str, weights: object, parts: tuple[str, ...], images: Path, run: Path, tmp_path: Path
) -> None:
    file = tmp_path / name
    save_file(weights(), file) if file.suffix == ".safetensors" else torch.save(weights(), file)
    assert_refused(train(images, run, "--weights", file), file, *parts)
    assert not run.exists()


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth"])
def test_weights_that_cannot_be_read_are_refused(
    name: str, images: Path, run: Path, tmp_path: Path
) -> None:
    (tmp_path / name).write_text("no weights")
    ended = train(images, run, "--weights", tmp_path / name)
    assert_refused(ended, tmp_path / name, "cannot be read as weights")
    assert not run.exists()


def test_missing_weights_are_refused(images: Path, run: Path, tmp_path: Path) -> None:
    ended = train(images, run, "--weights", tmp_path / "a.pth")
    assert_refused(ended, tmp_path / "a.pth", "is no file", "'imagenet' or 'none'")
    assert not run.exists()


def test_imagenet_weights_of_ones_own_network_are_refused(images: Path, run: Path) -> None:
    ended = train(images, run, "--weights", "imagenet")
    assert_refused(ended, "weights='imagenet'", "use 'none'")
    assert not run.exists()


def again(finished: Path, *words: object) -> Ended:
    return train(finished.parent / "images", finished, "--method", "erm", *words)


def test_folder_of_another_run_is_refused(finished: Path) -> None:
    before = contents(finished)
    for words in (("--seed", 5), ("--seed", 5, "--resume")):
        ended = again(finished, *words)
        assert_refused(ended, finished, "seed=0", "this one has 5", "--out")
    assert contents(finished) == before


def test_folder_of_the_same_run_is_refused_without_resume(finished: Path) -> None:
    before = contents(finished)
    assert_refused(again(finished), finished, "holds this run already", "--resume", "--out")
    assert contents(finished) == before


def test_folder_that_holds_no_run_is_refused(images: Path, run: Path) -> None:
    run.mkdir()
    (run / "thesis.txt").write_text("years of work")
    for words in ((), ("--resume",)):
        assert_refused(train(images, run, *words), run, "holds no run", "--out")
    assert contents(run) == {"thesis.txt": b"years of work"}


def test_folder_whose_config_is_of_something_else_is_refused(images: Path, run: Path) -> None:
    run.mkdir()
    (run / "config.json").write_text("{")
    assert_refused(train(images, run), run / "config.json", "is no JSON", "remove")
    assert contents(run) == {"config.json": b"{"}


def test_file_in_the_way_is_refused(images: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "run"):
        assert_refused(train(images, out, "--method", "erm"), out)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_folder_that_may_not_be_written_is_refused(images: Path, run: Path) -> None:
    run.mkdir(mode=0o500)
    assert_refused(train(images, run, "--method", "erm"), "Permission denied", run)


def test_resume_of_a_finished_run_returns_its_record_and_changes_nothing(finished: Path) -> None:
    before = contents(finished)
    ended = again(finished, "--resume", "--json")
    assert ended.code == 0
    record = json.loads(ended.out)
    assert record.pop("folder") == str(finished)
    assert record == json.loads(before["result.json"])
    assert contents(finished) == before


def test_resume_starts_a_run_that_is_not_there(images: Path, run: Path) -> None:
    assert train(images, run, "--method", "erm", "--resume").code == 0
    assert (run / "result.json").exists()


def test_images_that_changed_since_are_refused(images: Path, run: Path) -> None:
    assert train(images, run, "--method", "erm").code == 0
    before = contents(run)
    Image.new("RGB", (16, 16)).save(images / "art" / "cat" / "00.png")
    ended = train(images, run, "--method", "erm", "--resume")
    assert_refused(ended, run, "other images", "changed since", "--out")
    assert contents(run) == before


COMMANDS = {
    "predict": ("IMAGE",),
    "explain": ("IMAGE", "-o", "OUT.png"),
    "eval": ("IMAGES",),
    "export": ("OUT.pt2",),
}
each_command = pytest.mark.parametrize("command", COMMANDS)


def inspected(command: str, run: Path, finished: Path, out: Path) -> Ended:
    """Run a command on `run`, with images of the finished run."""
    words = {
        "IMAGE": one_image(finished),
        "IMAGES": finished.parent / "images",
        "OUT.png": out / "a.png",
        "OUT.pt2": out / "a.pt2",
    }
    return run_cli(command, run, *(words.get(word, word) for word in COMMANDS[command]))


@each_command
def test_folder_that_is_no_run_is_refused(command: str, finished: Path, tmp_path: Path) -> None:
    ended = inspected(command, tmp_path, finished, tmp_path)
    assert_refused(ended, tmp_path, "is no folder of a run", "config.json")
    assert contents(tmp_path) == {}


@each_command
def test_run_that_has_not_ended_is_refused(
    command: str, finished: Path, unfinished: Path, tmp_path: Path
) -> None:
    before = contents(unfinished)
    ended = inspected(command, unfinished, finished, tmp_path)
    assert_refused(ended, unfinished, "no finished network", "--resume", "--checkpoint best")
    assert contents(unfinished) == before
    assert contents(tmp_path) == {}


def test_run_without_a_best_network_yet_is_refused(unfinished: Path, finished: Path) -> None:
    ended = run_cli("predict", unfinished, one_image(finished), "--checkpoint", "best")
    assert_refused(ended, unfinished, "no trained network yet", "--resume")


def test_network_whose_code_or_file_changed_since_is_refused(images: Path, run: Path) -> None:
    assert train(images, run, "--method", "erm").code == 0
    image = images / "art" / "cat" / "00.png"
    save_file(wide_net(), run / "model.safetensors")
    assert_refused(run_cli("predict", run, image), run / "model.safetensors", "[9, 4, 3, 3]")
    (run / "model.safetensors").write_bytes(b"half")
    assert_refused(run_cli("predict", run, image), run / "model.safetensors", "bring back")


@pytest.mark.parametrize("command", ["predict", "explain"])
def test_image_that_is_not_there_or_broken_is_named(
    command: str, finished: Path, tmp_path: Path
) -> None:
    output = () if command == "predict" else ("-o", tmp_path / "a.png")
    missing, bad = tmp_path / "missing.jpg", unreadable(tmp_path / "bad.jpg")
    good = one_image(finished)
    assert_refused(run_cli(command, finished, good, missing, *output), missing, "is no file")
    assert_refused(run_cli(command, finished, good, bad, *output), bad, "cannot be read")
    assert not (tmp_path / "a.png").exists()


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--class", "dgo"), ("--class 'dgo'", "did you mean 'dog'")),
        (("--layer", "7"), ("layer='7'", "no module of the model", "'6'")),
        (("--layer", "6"), ("layer='6'", "[n, channels, height, width]")),
    ],
)
def test_explanation_of_what_is_not_there_is_refused(
    words: tuple[str, ...], parts: tuple[str, ...], finished: Path, tmp_path: Path
) -> None:
    output = tmp_path / "a.png"
    ended = run_cli("explain", finished, one_image(finished), "-o", output, *words)
    assert_refused(ended, *parts)
    assert not output.exists()


def test_picture_of_an_unknown_ending_is_refused(finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.txt"
    output.write_text("mine")
    ended = run_cli("explain", finished, one_image(finished), "-o", output)
    assert_refused(ended, output, "'.txt'", ".png")
    assert output.read_text() == "mine"


def test_export_of_an_unknown_ending_is_refused(finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "a.pth"
    output.write_text("mine")
    assert_refused(run_cli("export", finished, output), output, "'.pth'", ".pt2 or .onnx")
    assert output.read_text() == "mine"


def test_export_into_a_folder_that_is_not_there_is_refused(finished: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "a.pt2"
    assert_refused(run_cli("export", finished, output), output, "does not exist")
    assert not output.parent.exists()


def test_score_on_a_class_that_the_network_does_not_know_is_refused(
    finished: Path, tmp_path: Path
) -> None:
    images = folder_of_images(tmp_path / "images", (), ("cat", "cow"), 2)
    assert_refused(run_cli("eval", finished, images), "class 'cow'", "cat, dog")


def test_unknown_method_has_no_options_to_list() -> None:
    assert_refused(run_cli("methods", "cifc"), "method.name='cifc'", "did you mean 'cicf'?")


@pytest.mark.parametrize(
    "words", [("trian",), ("train",), ("train", "demo", "--epochs", "many"), ("train", "--nope")]
)
def test_wrong_usage_is_told_with_the_help_to_read(words: tuple[str, ...]) -> None:
    ended = run_cli(*words)
    assert ended.code == 2
    assert ended.out == ""
    assert "--help" in ended.err
    assert "Traceback" not in ended.err


def test_explaining_an_image_does_not_overwrite_it(finished: Path) -> None:
    image = one_image(finished)
    before = image.read_bytes()
    assert_refused(run_cli("explain", finished, image, "-o", image), image, "name another file")
    assert image.read_bytes() == before


def test_sources_of_one_class_are_refused(tmp_path: Path, run: Path) -> None:
    folder_of_images(tmp_path / "images", ("art",), ("cat",), 6)
    folder_of_images(tmp_path / "images", ("photo",), ("dog",), 6)
    ended = train(tmp_path / "images", run, "--target", "art")
    assert_refused(ended, "all of one class", "hold another domain out")
    assert not run.exists()


def test_mistake_found_in_the_first_step_leaves_the_folder_to_be_used_again(
    images: Path, run: Path
) -> None:
    sizes = ("--set", "inner.size=8", "--set", "outer.size=4")
    ended = train(
        images, run, *sizes, "--set", "clusters.source=network", "--set", "clusters.layer=x"
    )
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith("cicf: layer='x' is no module of the model")
    assert not run.exists()
    assert train(images, run, *sizes).code == 0


def test_folder_is_the_same_with_a_slash_behind_it(images: Path, run: Path) -> None:
    assert train(images, run, "--method", "erm").code == 0
    assert train(f"{images}/", run, "--method", "erm", "--resume").code == 0
