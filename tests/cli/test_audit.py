"""`cicf audit`, from the words of a user to tables, JSON and figures."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from tests.support.runs import SIZE, Ended, folder_of_images, run_cli, train

from cicf.experiment import open_run
from cicf.report.audit_confounded import held_out_digits
from cicf.report.interventions import interventions

CLASSES = ("cat", "dog", "owl")
FILES = ("pdf", "svg", "png", "csv")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `images`, their `masks`, two runs on them, and one on confounded."""
    root = tmp_path_factory.mktemp("audit")
    images = folder_of_images(root / "images", ("art", "photo", "sketch"), CLASSES, 3)
    for path in images.rglob("*.png"):
        mask = torch.zeros(SIZE, SIZE, dtype=torch.uint8)
        mask[4:12, 4:12] = 1
        place = root / "masks" / path.relative_to(images)
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask.numpy()).save(place)
    for name in ("erm", "cicf"):
        ended = train(images, root / name, "--target", "sketch", "--method", name)
        assert ended.code == 0, ended.err
    ended = run_cli(
        *("train", "confounded", "--method", "erm", "--epochs", 1, "--out", root / "digits"),
        *("--model", "tests.support.runs:tiny_net", "--set", "data.image_size=32"),
    )
    assert ended.code == 0, ended.err
    return root


def printed(ended: Ended) -> Any:
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def refused(ended: Ended, *parts: object) -> None:
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.count("\n") == 1
    for part in parts:
        assert str(part) in ended.err


def test_confounded_audit_is_a_table_a_figure_and_the_command(root: Path, tmp_path: Path) -> None:
    ended = run_cli("audit", root / "digits", "--fast", "-o", tmp_path / "fig")
    assert ended.code == 0, ended.err
    assert "erm: % of images" in ended.out
    assert "60 held-out digits" in ended.out
    assert f"again: cicf audit {root / 'digits'} --fast -o {tmp_path / 'fig'}" in ended.out
    assert {path.name for path in tmp_path.iterdir()} == {f"fig.{ending}" for ending in FILES}
    head, *rows = (tmp_path / "fig.csv").read_text().splitlines()
    assert head == "run,strength,measure,mean,low,high,images"
    assert len(rows) == 6 * 9


def test_confounded_audit_is_of_the_network_of_the_run(root: Path) -> None:
    """The accuracy where the confounder always is the label, by another way."""
    found = printed(run_cli("audit", root / "digits", "--fast", "--json"))
    digits = held_out_digits("colour", most=60)
    expected = open_run(root / "digits").scores(digits.do_confounder(digits.y).dataset())["colour"]
    (at_one,) = [e for e in found["runs"][0]["measures"]["accuracy"] if e["relation"] == 1]
    assert at_one["value"] == pytest.approx(expected.correct / 60)
    assert found["images"] == 60


def test_runs_of_one_name_are_told_apart_and_one_run_is_named_once(root: Path) -> None:
    twin = root / "twin" / "digits"
    shutil.copytree(root / "digits", twin)
    found = printed(run_cli("audit", root / "digits", twin, "--fast", "--json"))
    assert [run["run"] for run in found["runs"]] == [
        f"erm ({root / 'digits'})",
        f"erm ({twin})",
    ]
    assert all(e["value"] == 0 for e in found["runs"][1]["minus_first"]["stays"])
    refused(run_cli("audit", twin, twin), "is named twice")


@pytest.mark.parametrize("method", ["erm", "cicf"])
def test_own_target_is_audited_with_labels(root: Path, method: str) -> None:
    found = printed(run_cli("audit", root / method, "--json"))
    assert (found["images"], found["of"]) == (9, 9)
    (run,) = found["runs"]
    names = {each["intervention"] for each in run["effects"]}
    assert names == {each.name for each in interventions() if not each.needs_mask}
    expected = json.loads((root / method / "result.json").read_text())["last"]["test"]["theta"]
    if method == "erm":
        score = expected["sketch"]
        assert run["effects"][0]["accuracy"]["value"] == pytest.approx(score["correct"] / 9)
    assert all(flip["before"] != flip["after"] for flip in run["flips"])
    assert all(flip["image"].startswith("sketch/") for flip in run["flips"])


def test_two_runs_in_one_figure_with_the_images_that_flip(root: Path, tmp_path: Path) -> None:
    ended = run_cli("audit", root / "erm", root / "cicf", "--fast", "-o", tmp_path / "fig.png")
    assert ended.code == 0, ended.err
    assert "cicf minus erm, paired" in ended.out
    names = {path.name for path in tmp_path.iterdir()}
    assert {f"fig.{ending}" for ending in FILES} <= names
    flips = "images flip" in ended.out
    assert ("fig-flips.png" in names) == flips
    assert len((tmp_path / "fig.csv").read_text().splitlines()) == 1 + 2 * 9 * 2


def test_with_masks_the_background_is_replaced(root: Path) -> None:
    masks = ("--masks", root / "masks")
    found = printed(run_cli("audit", root / "erm", *masks, "--fast", "--json"))
    effects = found["runs"][0]["effects"]
    assert [e["strength"] for e in effects if e["intervention"] == "background"] == [0.25, 1.0]


def test_images_without_labels_have_no_accuracy(root: Path) -> None:
    folder = root / "images" / "art" / "cat"
    found = printed(run_cli("audit", root / "erm", "--images", folder, "--json"))
    assert found["images"] == 3
    assert all(each["accuracy"] is None for each in found["runs"][0]["effects"])
    shown = run_cli("audit", root / "erm", "--images", folder / "00.png", "--images", folder)
    assert "right before" not in shown.out


def test_of_many_images_some_are_drawn_and_it_is_told(root: Path) -> None:
    words = ("audit", root / "erm", "--data", root / "images", "--most", 5)
    shown = run_cli(*words)
    assert "5 images, drawn of 27" in shown.out
    assert shown == run_cli(*words)


def test_one_domain_of_the_data(root: Path) -> None:
    words = ("audit", root / "erm", "--data", root / "images", "--domain", "art")
    assert printed(run_cli(*words, "--json"))["of"] == 9
    refused(run_cli(*words[:-1], "arts"), "'arts' is not a domain; did you mean 'art'?")


def test_mistakes_are_told_in_a_sentence(root: Path, tmp_path: Path) -> None:
    run, empty = root / "erm", tmp_path / "empty"
    empty.mkdir()
    refused(run_cli("audit", tmp_path / "no"), tmp_path / "no")
    refused(run_cli("audit", run, "--data", "confounded"), "does not know the digit '0'")
    refused(run_cli("audit", run, "--images", empty), empty, "holds no images")
    refused(run_cli("audit", run, "--images", tmp_path / "no.png"), "does not exist")
    refused(run_cli("audit", run, "--data", "demo", "--images", empty), "exclude each other")
    cows = folder_of_images(tmp_path / "farm", (), ("cat", "cow"), 1)
    refused(run_cli("audit", run, "--data", cows), "class 'cow' is none that the network knows")
    refused(run_cli("audit", run, "--confounder", "colour"), "belongs to --data confounded")
    refused(run_cli("audit", run, "--domain", "art"), "goes with --data")
    refused(run_cli("audit", run, root / "digits"), "tested on different images", "--data")
    refused(run_cli("audit", root / "digits", "--masks", empty), "--masks", "leave it out")
    refused(run_cli("audit", run, "-o", run / "figure"), "folder of a run")
    assert run_cli("audit", run, "--most", 1).code == 2


def test_masks_that_do_not_fit_are_refused(root: Path, tmp_path: Path) -> None:
    image = root / "images" / "art" / "cat" / "00.png"
    words = ("audit", root / "erm", "--images", image, "--masks")
    refused(run_cli(*words, tmp_path / "no"), "is no folder")
    refused(run_cli(*words, tmp_path), "has no 00.png for", "leave --masks out")
    Image.new("L", (SIZE, SIZE + 1), 255).save(tmp_path / "00.png")
    refused(run_cli(*words, tmp_path), "has 16 x 17 pixels and its image 16 x 16")
    Image.new("L", (SIZE, SIZE), 255).save(tmp_path / "00.png")
    refused(run_cli(*words, tmp_path), "is of one colour")
    both = ("audit", root / "erm", "--images", root / "images" / "art", "--masks", tmp_path)
    for name in ("01", "02"):
        Image.new("L", (SIZE, SIZE), 255).save(tmp_path / f"{name}.png")
    refused(run_cli(*both), "would be the mask of 3 images of that name")


def test_images_that_have_changed_since_are_refused(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", ("art", "photo"), CLASSES, 3)
    train(images, tmp_path / "run", "--target", "photo", "--method", "erm")
    (images / "photo" / "cat" / "00.png").unlink()
    refused(run_cli("audit", tmp_path / "run"), "no longer those that the run was trained on")
