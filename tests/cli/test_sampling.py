"""`cicf sampling`, from images to what is printed and written."""

import json
from pathlib import Path

import pytest
from PIL import Image
from tests.support.runs import OPTIONS, folder_of_images, run_cli, train

from cicf.report.sampling import FAST


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return three domains of two classes, 16 images each."""
    path = tmp_path_factory.mktemp("sampling") / "images"
    folder_of_images(path, ("art", "photo", "sketch"), ("cat", "dog"), 16)
    return path


def quick(images: Path) -> tuple[object, ...]:
    return ("sampling", images, "--target", "sketch", *OPTIONS, "--fast", "--m", "8,20")


@pytest.mark.slow
def test_prints_tables_and_what_can_be_said(images: Path, tmp_path: Path) -> None:
    ended = run_cli(*quick(images), "-o", tmp_path / "figure")
    assert ended.code == 0, ended.err
    for part in ("gap E", "root mean square", "mean square of clustered", "mean cosine"):
        assert part in ended.out
    assert "56 training images: art 28, photo 28" in ended.out
    assert "gradients of all of them" in ended.out
    assert "Observed and predicted errors agree" in ended.out
    assert "again: cicf sampling" in ended.out
    assert "parameters for 56 images: about" in ended.err
    assert {file.suffix for file in tmp_path.iterdir()} == {".pdf", ".svg", ".png", ".csv"}


def test_few_images_are_enough_for_batches_that_fit(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", ("art", "photo"), ("cat", "dog"), 4)
    ended = run_cli("sampling", images, "--target", "photo", *OPTIONS, "--fast", "--json")
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["m"] == 3


@pytest.mark.slow
def test_json_has_everything_and_nothing_else_is_printed(images: Path) -> None:
    ended = run_cli(*quick(images), "--json", "--images", 24, "--k", "1,2", "--seed", 1)
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["target"], found["images"], found["seed"]) == ("sketch", 24, 1)
    assert [(each["k"], each["m"]) for each in found["errors"]] == [
        (3, 8),
        (3, 20),
        (1, 20),
        (2, 20),
    ]
    first = found["errors"][0]
    assert [each["sampler"] for each in first["batches"]] == [
        "random",
        "class-weighted",
        "clustered",
    ]
    assert first["clustered_against"]["random"]["verdict"] in ("below", "above", "not told apart")
    assert found["gaps"][0]["ratio"] == pytest.approx(found["gaps"][0]["mean"] / 8)
    assert found["cosines"]["within"]["low"] <= found["cosines"]["within"]["value"]
    assert len(found["said"]) >= 5
    assert found["files"] == []


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(images: Path) -> None:
    first, again, other = (
        run_cli(*quick(images), "--json", "--images", 24, "--seed", seed) for seed in (0, 0, 1)
    )
    assert first.out == again.out
    assert first.out != other.out


@pytest.mark.slow
def test_the_target_is_not_decoded(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", ("art", "photo", "sketch"), ("cat", "dog"), 8)
    for file in (images / "sketch").rglob("*.png"):
        file.write_bytes(file.read_bytes()[:100])
        with pytest.raises(OSError, match="truncated"), Image.open(file) as picture:
            picture.load()
    ended = run_cli(*quick(images), "--json", "--m", "8")
    assert ended.code == 0, ended.err
    refused = run_cli("sampling", images, "--target", "art", *OPTIONS, "--fast", "--m", "8")
    assert refused.code == 2


@pytest.mark.slow
def test_features_of_the_network_make_other_clusters(images: Path) -> None:
    pixels, network = (
        json.loads(run_cli(*quick(images), "--json", "--features", kind).out)
        for kind in ("pixels", "network")
    )
    assert (pixels["features"], network["features"]) == ("pixels", "network")
    assert pixels["gradient_norm"] == network["gradient_norm"]
    assert pixels["cosines"] != network["cosines"]


@pytest.mark.slow
def test_a_trained_network_is_looked_at_on_its_own_images(images: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert train(images, run, "--target", "sketch", "--method", "erm").code == 0
    words = ("sampling", images, "--run", run, "--fast", "--m", "8,20")
    ended = run_cli(*words, "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert (found["target"], found["weights"]) == ("sketch", "of the run")
    fresh = json.loads(run_cli(*quick(images), "--json").out)
    assert found["sources"] == fresh["sources"]
    assert found["gaps"] == fresh["gaps"]
    assert found["gradient_norm"] != fresh["gradient_norm"]

    changed = run_cli(*words, "--set", "clusters.per_class=2", "--json")
    assert json.loads(changed.out)["k"] == 2
    refused = run_cli(*words, "--target", "photo")
    assert refused.code == 2
    assert "only clusters.* may differ" in refused.err
    others = folder_of_images(tmp_path / "o", ("art", "photo", "sketch"), ("cat", "dog"), 9)
    refused = run_cli("sampling", others, "--run", run, "--fast")
    assert refused.code == 2
    assert "trained on other images" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--m", "8,x"), "--m '8,x' must be whole numbers from 1"),
        (("--k", "0"), "--k '0' must be whole numbers from 1"),
        (("--m", "57"), "--m 57 must lie between 1 and 56"),
        (("--target", "skech"), "did you mean 'sketch'"),
        (("--run", "nowhere"), "nowhere"),
        (("--set", "clusters.per_clas=2"), "clusters.per_class"),
        (("-o", "."), "-o . is a folder"),
    ],
)
def test_mistakes_are_told_in_a_sentence(images: Path, words: tuple[str, ...], said: str) -> None:
    ended = run_cli(*quick(images), *words)
    assert ended.code == 2
    assert said in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.slow
def test_the_demo_is_fast() -> None:
    ended = run_cli("sampling", "demo", "--target", "blended", "--fast", "--json")
    assert ended.code == 0, ended.err
    found = json.loads(ended.out)
    assert found["images"] == FAST.images
    below = found["errors"][1]["clustered_against"]["random"]
    assert below["verdict"] == "below"
