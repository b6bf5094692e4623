"""A run with decoded images on disk: the same outcome, each image decoded as seldom as can be."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch
from PIL import Image
from tests.support.runs import run_cli
from tests.support.tiny import config, write_images
from torch import Tensor

import cicf
from cicf.data import images as decoding
from cicf.data.cache import kept
from cicf.experiment import events
from cicf.experiment.data import load_data
from cicf.results import RunFolder
from cicf.training import Caching, EpochEnded


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> Counter[Path]:
    """Count how often every file is decoded."""
    seen: Counter[Path] = Counter()
    original = decoding._decoded

    def decoded(file: Path) -> Tensor:
        seen[file] += 1
        return original(file)

    monkeypatch.setattr(decoding, "_decoded", decoded)
    return seen


def outcome(folder: Path) -> list[object]:
    record = json.loads((folder / "result.json").read_text())
    del record["seconds"], record["peak_memory"]
    files = ("model.safetensors", "metrics.jsonl")
    return [record, *((folder / name).read_bytes() for name in files)]


@pytest.mark.parametrize("augment", ["basic", "autoaugment"])
def test_outcome_is_the_same_with_and_without_it(
    images: Path, tmp_path: Path, augment: str
) -> None:
    data = {"augment": augment, "image_size": 11}
    model = {"name": "tests.support.runs:tiny_net", "cut": None}
    for name, machine in (("cold", {}), ("warm", {}), ("off", {"cache": "off"})):
        run = config(images, epochs=1, data=data, model=model, machine=machine)
        cicf.train(run, out=tmp_path / name)
    assert outcome(tmp_path / "cold") == outcome(tmp_path / "off")
    assert outcome(tmp_path / "warm") == outcome(tmp_path / "off")


def test_images_are_decoded_once_to_be_looked_at_and_once_to_be_kept(
    images: Path, tmp_path: Path, decodes: Counter[Path]
) -> None:
    cicf.train(config(images, epochs=3), out=tmp_path / "first")
    assert set(decodes.values()) == {2}
    assert len(decodes) == 72
    decodes.clear()
    cicf.train(config(images, epochs=2, seed=1), out=tmp_path / "second")
    # Only what was held out before, and is trained on now, has no enlarged square yet.
    assert set(decodes.values()) == {1}
    assert len(decodes) <= 12
    decodes.clear()
    cicf.train(config(images, epochs=1, seed=1), out=tmp_path / "third")
    assert not decodes


def test_changed_image_is_looked_at_again(
    images: Path, tmp_path: Path, decodes: Counter[Path]
) -> None:
    cicf.train(config(images, epochs=1), out=tmp_path / "first")
    decodes.clear()
    broken = next((images / "sketch" / "left").iterdir())
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(cicf.DataError, match=f"1 of 72 images cannot be read, .* {broken}"):
        cicf.train(config(images, epochs=1), out=tmp_path / "second")


def test_run_tells_of_the_images_that_it_decodes_and_of_the_target_at_the_end(
    images: Path, tmp_path: Path
) -> None:
    told: list[object] = []
    for event in events(config(images, epochs=1), out=tmp_path / "run"):
        if isinstance(event, Caching):
            told.append((event.done, event.total))
        elif isinstance(event, RunFolder | EpochEnded):
            told.append(type(event))
    assert told == [RunFolder, (0, 48), (48, 48), EpochEnded, (0, 24), (24, 24)]


def test_folder_is_the_one_that_is_named(images: Path, tmp_path: Path, cache_root: Path) -> None:
    machine = {"cache_folder": str(tmp_path / "own")}
    cicf.train(config(images, epochs=1, machine=machine), out=tmp_path / "run")
    assert not cache_root.exists()
    assert [each.images for each in kept(tmp_path / "own")] == [72]


def test_nothing_is_kept_when_it_is_off(images: Path, tmp_path: Path, cache_root: Path) -> None:
    run = config(images, epochs=1, machine={"cache": "off"})
    assert not any(isinstance(e, Caching) for e in events(run, out=tmp_path / "run"))
    assert not cache_root.exists()


def test_predictions_see_the_pixels_of_the_evaluation(images: Path, tmp_path: Path) -> None:
    wide = images / "sketch" / "left" / "0.png"
    Image.new("RGB", (31, 17), (9, 200, 77)).save(wide)
    run = config(images, epochs=1, data={"image_size": 8})
    cicf.train(run, out=tmp_path / "run")
    loaded = cicf.open_run(tmp_path / "run")
    data = load_data(run.data).data
    together = loaded.transform.evaluation(data, torch.arange(len(data)))
    alone = loaded.prepared([data.images[place] for place in range(len(data))])
    assert torch.equal(together, alone)


def test_command_shows_and_clears(images: Path, tmp_path: Path, cache_root: Path) -> None:
    assert f"0.0 MB in {cache_root}" in run_cli("data", "cache").out
    cicf.train(config(images, epochs=1), out=tmp_path / "run")
    (entry,) = json.loads(run_cli("data", "cache", "--json").out)["sets"]
    assert entry["images"] == 72
    assert entry["data"] in run_cli("data", "cache").out
    assert f"of decoded images from {cache_root}" in run_cli("data", "cache", "--clear").out
    assert kept(cache_root) == []
