"""List files beside the images, as they come with the benchmarks, and what may be wrong in them."""

import re
from collections import Counter
from pathlib import Path

import pytest
from tests.support.benchmarks import (
    OFFICE_HOME_DOMAINS,
    PACS,
    PACS_CLASSES,
    VLCS,
    dassl_pacs,
    domain_class_image,
    fill,
    jigen_vlcs,
    office_home_counts,
    write_list,
)

from cicf.data.benchmarks.entries import Found
from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.layouts import load_benchmark, read_benchmark

SMALL_VLCS = dict.fromkeys(VLCS, (13, 13, 13, 13, 13))
SMALL_TEST = dict.fromkeys(VLCS, (3, 3, 3, 3, 3))
"""Of 13 images of a class, 9 to train, 1 to validate, 3 to test."""


def pacs(root: Path) -> Path:
    return domain_class_image(root, PACS, PACS_CLASSES)


def by_part(found: Found) -> Counter[str | None]:
    return Counter(entry.part for entry in found.entries)


def listed(*paths: str) -> list[str]:
    """Return lines of a list file with labels counted from 0."""
    return [f"{path} {PACS_CLASSES.index(path.split('/')[-2])}" for path in paths]


def test_lists_of_jigen_do_not_make_validation_images_train(tmp_path: Path) -> None:
    jigen_vlcs(tmp_path, SMALL_VLCS, SMALL_TEST)
    for domain in VLCS:
        full = sorted((tmp_path / "VLCS" / domain / "full").rglob("*.jpg"))
        lines = [f"/elsewhere/VLCS/{domain}/full/{p.parent.name}/{p.name} 0" for p in full]
        numbered = [line[:-1] + line.split("/")[-2] for line in lines]
        write_list(tmp_path / "txt_lists" / f"{domain}_train.txt", numbered)
    found = read_benchmark(benchmark("vlcs"), tmp_path)
    assert by_part(found) == {"train": 180, "validation": 20, "test": 60}
    assert found.problems == ()


@pytest.mark.parametrize("base", [0, 1])
def test_lists_of_the_authors_give_the_split_and_their_base(tmp_path: Path, base: int) -> None:
    dassl_pacs(tmp_path, train=2, crossval=1, base=base)
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert by_part(found) == {"train": 56, "validation": 28}
    assert {entry.name for entry in found.entries if entry.part == "validation"} == {"00003.jpg"}
    assert found.notes == (f"labels in the list files count from {base}",)
    assert found.problems == ()
    assert found.layout == "domain/class/image with list files"


def test_lists_of_cdan_have_an_order_of_their_own(tmp_path: Path) -> None:
    classes = [*office_home_counts()["Art"]]
    domain_class_image(tmp_path, OFFICE_HOME_DOMAINS, classes)
    own = ["Drill", "Exit_Sign", *[each for each in classes if each not in ("Drill", "Exit_Sign")]]
    for domain in OFFICE_HOME_DOMAINS:
        lines = [
            f"/data/office-home/images/{domain}/{label}/00001.jpg {number}"
            for number, label in enumerate(own)
        ]
        write_list(tmp_path / f"{domain.replace(' ', '_')}.txt", lines)
    data, notes = load_benchmark(benchmark("office-home"), tmp_path)
    assert data.y[:3].tolist() == [0, 1, 2]
    assert data.images.paths[16].parent.name == "Drill"
    assert data.part is None
    assert notes[0] == (
        "labels in the list files are in an order of their own (Drill = 0); classes are told by "
        "their folders"
    )


def test_path_in_a_list_may_have_spaces(tmp_path: Path) -> None:
    domain_class_image(tmp_path, OFFICE_HOME_DOMAINS, ["Alarm_Clock"])
    for domain in OFFICE_HOME_DOMAINS:
        write_list(tmp_path / f"{domain}_train.txt", [f"{domain}/Alarm_Clock/00001.jpg 0"])
    found = read_benchmark(benchmark("office-home"), tmp_path)
    assert by_part(found) == {"train": 4}
    assert found.problems == ()


def test_domain_of_a_list_stands_in_where_its_paths_name_none(tmp_path: Path) -> None:
    pacs(tmp_path)
    for domain in PACS:
        lines = listed(*[f"{label}/00001.jpg" for label in PACS_CLASSES])
        write_list(tmp_path / "image_list" / f"{domain}_val.txt", lines)
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert by_part(found) == {"validation": 28}


def test_test_list_apart_from_the_train_list_is_a_test_part(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    for domain in PACS:
        splits = tmp_path / "pacs" / "splits"
        (splits / f"{domain}_crossval_kfold.txt").replace(splits / f"{domain}_test_kfold.txt")
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert by_part(found) == {"train": 56, "test": 28}


def test_validation_is_the_rest_where_only_train_and_all_are_listed(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    for path in (tmp_path / "pacs" / "splits").glob("*_crossval_kfold.txt"):
        path.unlink()
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert by_part(found) == {"train": 56, "validation": 28}
    assert found.notes[0] == (
        "the lists of art_painting name no validation part; it is what the train list leaves out"
    )


def edited(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_listed_file_that_is_missing_is_a_problem(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    (tmp_path / "pacs" / "images" / "sketch" / "dog" / "00001.jpg").unlink()
    (problem,) = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert problem.startswith("1 listed images do not exist, the first is sketch/dog/00001.jpg;")


def test_image_in_train_and_crossval_is_a_problem_and_only_trained_on(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    path = tmp_path / "pacs" / "splits" / "photo_crossval_kfold.txt"
    path.write_text(path.read_text() + "photo/dog/00001.jpg 1\n")
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert found.problems == (
        "1 images of photo are in the train and the validation list, the first is "
        "photo/dog/00001.jpg; remove them from one",
    )
    assert by_part(found) == {"train": 56, "validation": 28}


def test_images_in_no_list_are_a_problem(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    fill(tmp_path / "pacs" / "images" / "photo" / "dog", ["new.jpg", "other.jpg"])
    (problem,) = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert problem.startswith("2 images are in no list, the first is ")
    assert "photo/dog/new.jpg" in problem


def test_class_with_two_numbers_is_a_problem(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    path = tmp_path / "pacs" / "splits" / "photo_train_kfold.txt"
    edited(path, "photo/dog/00001.jpg 1", "photo/dog/00001.jpg 4")
    (problem,) = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert problem.startswith("the lists number class 'dog' as 1 and as 4;")


def test_two_classes_of_one_number_are_a_problem(tmp_path: Path) -> None:
    dassl_pacs(tmp_path)
    for path in (tmp_path / "pacs" / "splits").iterdir():
        path.write_text(re.sub(" 2$", " 1", path.read_text(), flags=re.MULTILINE))
    (problem,) = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert problem.startswith("the lists number classes 'dog' and 'elephant' alike;")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("photo/cat/00001.jpg 1", "name no class of PACS as their last folder"),
        ("no label here", "are not `path label`"),
        ("sketch/dog/00001.jpg 1", "name images of another domain"),
    ],
)
def test_line_that_cannot_be_used_is_a_problem(tmp_path: Path, line: str, says: str) -> None:
    dassl_pacs(tmp_path)
    path = tmp_path / "pacs" / "splits" / "photo_train_kfold.txt"
    path.write_text(path.read_text() + line + "\n")
    problem = read_benchmark(benchmark("pacs"), tmp_path).problems[0]
    assert problem.startswith(f"1 lines of {path} {says}, the first is {line.removesuffix(' 1')!r}")


def test_text_that_is_no_list_is_ignored(tmp_path: Path) -> None:
    pacs(tmp_path)
    (tmp_path / "photo.txt").write_text("These are photographs.\n")
    (tmp_path / "readme_train.txt").write_text("photo/dog/00001.jpg 1\n")
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert (found.notes, found.problems) == ((), ())


def test_list_that_is_separated_by_commas_is_a_list(tmp_path: Path) -> None:
    pacs(tmp_path)
    lines = [line.replace(" ", ",") for line in listed("photo/dog/00001.jpg")]
    write_list(tmp_path / "photo_train.txt", lines)
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert by_part(found)["train"] == 1


def test_list_of_which_no_line_can_be_read_is_a_problem(tmp_path: Path) -> None:
    pacs(tmp_path)
    (tmp_path / "photo_train.txt").write_text("photo/dog/00001.jpg;0\n")
    problems = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert any("1 lines of" in each and "are not `path label`" in each for each in problems)


def test_list_whose_paths_name_no_class_is_a_problem(tmp_path: Path) -> None:
    pacs(tmp_path)
    (tmp_path / "photo_train.txt").write_text("image_0001.jpg 3\n")
    problems = read_benchmark(benchmark("pacs"), tmp_path).problems
    assert any("name no class of PACS" in each for each in problems)


def test_test_lists_of_pacs_never_make_a_test_part(tmp_path: Path) -> None:
    dassl_pacs(tmp_path, train=2, crossval=1, base=1)
    # One image of the train list is missing in the test list, and the other way round.
    for kind, place in (("test", 0), ("train", 1)):
        path = next(tmp_path.rglob(f"sketch_{kind}_kfold.txt"))
        lines = path.read_text().splitlines()
        del lines[place]
        path.write_text("\n".join(lines) + "\n")
    found = read_benchmark(benchmark("pacs"), tmp_path)
    assert by_part(found) == {"train": 55, "validation": 28, None: 1}
