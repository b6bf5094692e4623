"""`cicf figure`, from the words of a user to files and numbers."""

import csv
import json
from math import isnan
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from PIL import Image
from tests.support.runs import Ended, folder_of_images, run_cli, train
from tests.support.scenes import loaded_run, masked_images

from cicf.cli.figure_focus import print_focus
from cicf.report.focus import glances
from cicf.report.looking import Scene, focused

CLASSES = ("cat", "dog", "owl")
FILES = ("figure.pdf", "figure.svg", "figure.png", "figure.csv")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with `images` of three domains, and runs on them: a, b, and other targets."""
    root = tmp_path_factory.mktemp("figures")
    images = folder_of_images(root / "images", ("art", "photo", "sketch"), CLASSES, 5)
    for name, target, seed in (("a", "sketch", 0), ("b", "sketch", 1), ("other", "photo", 0)):
        words = ("--method", "erm", "--target", target, "--seed", seed)
        ended = train(images, root / name, *words)
        assert ended.code == 0, ended.err
    cows = folder_of_images(root / "cows", ("art", "photo"), ("cow", "dog"), 3)
    assert train(cows, root / "cow", "--method", "erm", "--target", "art").code == 0
    return root


def figure(folder: Path, out: Path, kind: str, *words: object) -> Ended:
    runs = [folder / word if isinstance(word, Path) else word for word in words]
    return run_cli("figure", kind, *runs, "-o", out / "figure")


def printed(ended: Ended) -> Any:
    assert ended.code == 0, ended.err
    return json.loads(ended.out)


def rows(out: Path) -> list[dict[str, str]]:
    with (out / "figure.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_gradcam_measures_where_masks_are_known(tmp_path: Path) -> None:
    digits = folder_of_images(tmp_path / "digits", ("art", "photo"), [*map(str, range(10))], 2)
    for name, seed in (("a", 0), ("b", 1)):
        words = ("--target", "art", "--method", "erm", "--seed", seed)
        assert train(digits, tmp_path / name, *words).code == 0
    options = ("--data", "demo", "--domains", "plain,blended", "--labels", "ERM, other")
    words = (Path("a"), Path("b"), *options, "--fast", "--json")
    found = printed(figure(tmp_path, tmp_path, "gradcam", *words))
    assert [Path(file).name for file in found["files"]] == list(FILES)
    assert found["layers"] == {"ERM": "3", "other": "3"}
    assert [(each["run"], each["domain"], each["role"]) for each in found["focus"]] == [
        ("ERM", "plain", "other"),
        ("other", "plain", "other"),
        ("ERM", "blended", "other"),
        ("other", "blended", "other"),
    ]
    data = rows(tmp_path)
    assert (len(data), sum(row["is drawn"] == "1" for row in data)) == (80, 4)
    for score in found["focus"]:
        here = [row for row in data if row["domain"] == score["domain"]]
        shares = [float(row[f"{score['run']}: energy inside"]) for row in here]
        known = [share for share in shares if not isnan(share)]
        assert score["zero_maps"] == 40 - len(known)
        assert score["energy"]["value"] == pytest.approx(fmean(known))
        assert score["area"] == pytest.approx(fmean(float(row["mask area"]) for row in here))
    assert [(each["run"], each["against"], each["domain"]) for each in found["differences"]] == [
        ("other", "ERM", "plain"),
        ("other", "ERM", "blended"),
    ]
    with Image.open(tmp_path / "figure.png") as picture:
        assert picture.width > 1000


def test_numbers_are_printed_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    data, places = masked_images(), list(range(24))
    runs = {"erm": loaded_run(), "cicf": loaded_run(seed=1)}
    scene = Scene(data, places[:2], places, {"art": "source", "sketch": "target"})
    seen = {
        name: [each for batch in glances(run, data, places) for each in batch]
        for name, run in runs.items()
    }
    found = focused(scene, seen)
    print_focus([], runs, scene, found, class_="owl", layer=None, as_json=False)
    out = capsys.readouterr().out
    text = " ".join(out.replace("│", " ").split())
    for word in ("art (source)", "sketch (target)", "cicf − erm", "maps are for the 'owl' class"):
        assert word in text
    for each in found.focus:
        assert f"{each.run} 12 {each.zero_maps} {100 * each.area:.1f} " in text


def test_gradcam_names_runs_and_repeats_the_command(folder: Path, tmp_path: Path) -> None:
    words = (Path("a"), Path("b"), "--fast", "--domains", "art", "--class", "predicted")
    ended = figure(folder, tmp_path, "gradcam", *words)
    assert ended.code == 0, ended.err
    assert "maps are for the predicted class; erm (a) at 3, erm (b) at 3" in ended.out
    assert ended.out.rstrip().endswith(f"--class predicted -o {tmp_path / 'figure'}")
    assert ended.err.splitlines()[0] == "Grad-CAM of erm (a): 2 images"


def test_gradcam_without_masks_says_so_and_gives_no_number(folder: Path, tmp_path: Path) -> None:
    ended = figure(folder, tmp_path, "gradcam", Path("a"), "--per-domain", 2)
    assert ended.code == 0, ended.err
    assert ended.out.startswith("no numbers: which pixels are the object is not known")
    first, second = rows(tmp_path)
    assert first["domain"] == second["domain"] == "sketch"
    assert first["image"].startswith(f"sketch/{first['class']}/")
    assert first["erm: energy inside"] == first["mask area"] == ""


def test_gradcam_of_files_knows_classes_by_their_folders(folder: Path, tmp_path: Path) -> None:
    file = folder / "images" / "art" / "dog" / "01.png"
    odd = Image.new("RGB", (40, 20))
    odd.save(tmp_path / "odd.png")
    found = printed(figure(folder, tmp_path, "gradcam", Path("a"), "--images", file, "--json"))
    assert (found["class"], found["focus"]) == ("true", [])
    assert rows(tmp_path)[0]["class"] == "dog"
    words = (Path("a"), "--images", file, "--images", str(tmp_path / "odd.png"), "--json")
    assert printed(figure(folder, tmp_path, "gradcam", *words))["class"] == "predicted"


def test_tsne_draws_all_domains_and_measures_sources_and_target(
    folder: Path, tmp_path: Path
) -> None:
    found = printed(figure(folder, tmp_path, "tsne", Path("a"), Path("b"), "--fast", "--json"))
    assert [Path(file).name for file in found["files"]] == list(FILES)
    assert [(each["run"], each["on"], each["images"]) for each in found["compactness"]] == [
        ("erm (a)", "sources", 30),
        ("erm (b)", "sources", 30),
        ("erm (a)", "target", 15),
        ("erm (b)", "target", 15),
    ]
    data = rows(tmp_path)
    assert list(data[0]) == ["run", "image", "domain", "class", "x", "y"]
    assert len(data) == 2 * 45
    assert {row["domain"] for row in data} == {"art", "photo", "sketch"}


def test_tsne_prints_intervals_and_the_command(folder: Path, tmp_path: Path) -> None:
    ended = figure(folder, tmp_path, "tsne", Path("a"), "--images", 6)
    assert ended.code == 0, ended.err
    assert "measured on the features, not in the plane" in ended.out
    assert "again: cicf figure tsne" in ended.out


def test_other_data_are_shown_without_roles(folder: Path, tmp_path: Path) -> None:
    words = (Path("a"), "--data", folder_of(tmp_path), "--json")
    found = printed(figure(folder, tmp_path, "tsne", *words))
    assert [each["on"] for each in found["compactness"]] == ["all shown"]


def folder_of(path: Path) -> str:
    return str(folder_of_images(path / "new", ("ink", "oil"), CLASSES, 4))


@pytest.mark.parametrize(
    ("kind", "words", "sentence"),
    [
        ("gradcam", (Path("a"), Path("cow")), "erm (cow) knows other classes than erm (a)"),
        ("tsne", (Path("a"), Path("other")), "is tested on photo and erm (a) on sketch"),
        ("tsne", (Path("a"), Path("a")), "a is named twice; name every run once"),
        ("tsne", (Path("a"), "--labels", "x,y"), "are 2 names for 1 runs; give every run"),
        ("tsne", (Path("a"), Path("b"), "--labels", "x,x"), "are 1 names for 2 runs"),
        ("tsne", (Path("a"), "--labels", ","), "names nothing; separate names by commas"),
        ("tsne", (Path("a"), "--domains", "skech"), "did you mean 'sketch'"),
        ("tsne", (Path("a"), "--images", "0"), "ask for at least 1"),
        ("tsne", (Path("a"), "--domains", "art", "--images", "3"), "t-SNE takes 4 images"),
        ("tsne", (Path("a"), "--images", "3"), "more images than classes"),
        ("gradcam", (Path("a"), "--per-domain", "0"), "ask for at least 1"),
        ("gradcam", (Path("a"), "--class", "11"), "--class '11' is none that the networks know"),
        ("gradcam", (Path("a"), "--layer", "block9"), "layer='block9' is no module"),
        ("gradcam", (Path("a"), "--images", "x.png", "--data", "demo"), "exclude each other"),
        ("gradcam", (Path("a"), "--images", "nowhere.png"), "nowhere.png is no file"),
        ("gradcam", (Path("a"), "--data", "nowhere"), "is no folder"),
        ("gradcam", (Path("nowhere"),), "nowhere"),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    kind: str, words: tuple[object, ...], sentence: str, folder: Path, tmp_path: Path
) -> None:
    ended = figure(folder, tmp_path, kind, *words)
    assert ended.code == 2
    assert sentence in ended.err
    assert len([line for line in ended.err.splitlines() if line.startswith("cicf: ")]) == 1
    assert not list(tmp_path.iterdir())


def test_figure_does_not_hide_the_files_of_a_run(folder: Path) -> None:
    ended = run_cli("figure", "tsne", folder / "a", "-o", folder / "a" / "figure")
    assert (ended.code, "folder of a run" in ended.err) == (2, True)


def test_images_that_have_changed_are_refused(tmp_path: Path) -> None:
    images = folder_of_images(tmp_path / "images", ("art", "photo"), CLASSES, 4)
    train(images, tmp_path / "run", "--method", "erm", "--target", "photo")
    (images / "art" / "cat" / "00.png").unlink()
    ended = figure(tmp_path, tmp_path, "tsne", Path("run"))
    assert ended.code == 2
    assert "are not those that erm is about" in ended.err
