"""Whether a copy of a benchmark is the official one, in the library and on the command line."""

import io
import json
import shutil
from pathlib import Path

import pytest
import typer
from PIL import Image
from tests.support.benchmarks import (
    OFFICE_HOME_DOMAINS,
    PACS,
    PACS_CLASSES,
    VLCS,
    VLCS_TEST,
    dassl_pacs,
    domain_class_image,
    fill,
    jigen_vlcs,
    names,
    office_home_counts,
    official_office_home,
    tiny,
)
from typer.testing import CliRunner, Result

from cicf import DataError
from cicf.cli.data import list_
from cicf.cli.data import verify as verify_command
from cicf.data.benchmarks.facts import benchmark
from cicf.data.benchmarks.verify import Verification, verify

FAULTY = "sketch/dog/n02103406_4068-1.png"


def pacs(root: Path) -> Path:
    return domain_class_image(root, PACS, PACS_CLASSES)


def truncated() -> bytes:
    content = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(content, format="PNG")
    return content.getvalue()[:1000]


def verified(root: Path, name: str = "pacs") -> Verification:
    return verify(benchmark(name), root)


def that_say(sentences: tuple[str, ...], words: str) -> list[str]:
    return [sentence for sentence in sentences if words in sentence]


@pytest.fixture(scope="module")
def whole_vlcs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return JiGen's copy of VLCS with all its images."""
    return jigen_vlcs(tmp_path_factory.mktemp("vlcs"), VLCS, VLCS_TEST)


@pytest.mark.slow
def test_official_office_home_is_complete(tmp_path: Path) -> None:
    found = verified(official_office_home(tmp_path), "office-home")
    assert found.is_complete
    assert (found.notes, found.parts) == ((), ())
    ours = dict(zip(OFFICE_HOME_DOMAINS, ("art", "clipart", "product", "real_world"), strict=True))
    assert [tuple(row) for row in found.rows] == [
        (ours[domain], label, count, count)
        for domain, counts in office_home_counts().items()
        for label, count in counts.items()
    ]


@pytest.mark.slow
def test_vlcs_of_jigen_is_complete_without_its_repeats(whole_vlcs: Path) -> None:
    found = verified(whole_vlcs, "vlcs")
    assert found.problems == ()
    assert sum(row.found for row in found.rows) == 10729
    tested = {row.domain: row[2:] for row in found.parts if row.part == "test"}
    assert tested == {
        "caltech": (424, 424),
        "labelme": (797, 797),
        "pascal": (1013, 1013),
        "sun": (985, 985),
    }
    caltech = [row.found for row in found.parts if row.domain == "caltech"]
    assert caltech == [991 - caltech[1], caltech[1], 424]
    assert found.notes[0] == "the folders `full` repeat train and crossval and are left out"


def test_row_has_what_was_found_and_what_is_official(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "photo" / "horse", names(5))
    rows = {(row.domain, row.label): row for row in verified(tmp_path).rows}
    assert len(rows) == 28
    assert rows["photo", "horse"][2:] == (5, 199)


def test_every_domain_whose_counts_differ_is_a_problem(tmp_path: Path) -> None:
    found = verified(pacs(tmp_path))
    assert not found.is_complete
    assert [problem.split(" images")[0] for problem in found.problems] == [
        "art_painting has 7 of 2048",
        "cartoon has 7 of 2344",
        "photo has 7 of 1670",
        "sketch has 7 of 3929",
    ]


def test_missing_domain_is_a_problem(tmp_path: Path) -> None:
    shutil.rmtree(pacs(tmp_path) / "cartoon")
    assert "cartoon has none of its 2344 images" in verified(tmp_path).problems


def test_missing_class_is_a_problem(tmp_path: Path) -> None:
    shutil.rmtree(pacs(tmp_path) / "photo" / "dog")
    assert that_say(verified(tmp_path).problems, "photo has 6 of 1670 images (dog 0 of 189")


def test_parts_are_compared_with_the_official_split(tmp_path: Path) -> None:
    found = verified(dassl_pacs(tmp_path, train=2, crossval=1))
    assert found.parts[:2] == (
        ("art_painting", "train", 14, 1840),
        ("art_painting", "validation", 7, 208),
    )
    assert "photo has 14 images in its train part instead of 1499" in found.problems


def test_missing_split_is_a_note(tmp_path: Path) -> None:
    found = verified(pacs(tmp_path))
    assert found.parts == ()
    assert that_say(found.notes, "the official split of PACS is not at hand")


def test_known_faulty_file_that_is_cut_off_is_explained(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "sketch" / "dog", [Path(FAULTY).name], truncated())
    found = verified(tmp_path)
    assert that_say(found.problems, f"{FAULTY} cannot be read, a known fault of some copies")
    assert not that_say(found.problems, "1 images cannot be read")


def test_known_faulty_file_that_is_whole_is_a_note(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "sketch" / "dog", [Path(FAULTY).name], tiny("PNG"))
    assert f"{FAULTY}, which is broken in some copies, is whole here" in verified(tmp_path).notes


def test_known_faulty_file_that_is_absent_is_a_note(tmp_path: Path) -> None:
    found = verified(pacs(tmp_path))
    assert f"{FAULTY}, which is broken in some copies, is absent here" in found.notes


def test_images_that_cannot_be_read_are_a_problem(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "photo" / "dog", ["0.png", "1.png"], truncated())
    problem = "2 images cannot be read, the first is photo/dog/0.png; get them again"
    assert problem in verified(tmp_path).problems


def test_endings_that_lie_are_counted(tmp_path: Path) -> None:
    pacs(tmp_path)
    fill(tmp_path / "photo" / "dog", ["0.png", "1.png"], tiny("JPEG"))
    assert that_say(
        verified(tmp_path).notes,
        "2 files have an ending that is not their format, such as photo/dog/0.png, which is JPEG",
    )


def test_same_bytes_in_train_and_validation_are_a_note(tmp_path: Path) -> None:
    root = tmp_path / "digits"
    for place, domain in enumerate(("mnist", "svhn")):
        fill(root / domain / "train" / "0", ["1.jpg"], tiny(grey=100))
        fill(root / domain / "val" / "0", ["2.jpg"], tiny(grey=100 + 50 * place))
    notes = verified(root, "digits-dg").notes
    assert notes == ("1 images have the same bytes in train and in validation of one domain",)


def test_progress_is_told_image_by_image(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    verify(benchmark("pacs"), pacs(tmp_path), on_image=lambda *each: told.append(each))
    assert told == [(number, 28) for number in range(1, 29)]


def test_what_reading_refuses_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no images of PACS but no folder, 0 images"):
        verified(tmp_path)


def command(*words: object) -> Result:
    """Run the commands as the program does, which has them below `data`."""
    app = typer.Typer()
    app.command("list")(list_)
    app.command("verify")(verify_command)
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.slow
def test_command_ends_with_0_for_a_complete_benchmark(whole_vlcs: Path) -> None:
    ended = command("verify", "VLCS", whole_vlcs)
    assert ended.exit_code == 0
    assert ended.stdout.endswith("10,729 of 10,729 images; complete\n")
    assert ended.stderr == ""


def test_command_ends_with_1_where_something_is_off(tmp_path: Path) -> None:
    ended = command("verify", "pacs", pacs(tmp_path))
    assert ended.exit_code == 1
    assert "problem: photo has 7 of 1670 images" in ended.stdout
    assert ended.stdout.endswith("28 of 9,991 images; 4 problems\n")


def test_table_of_many_classes_shows_totals_and_what_is_off(tmp_path: Path) -> None:
    counts = office_home_counts()
    domain_class_image(tmp_path, ["Art"], ["Drill"], 15)
    domain_class_image(tmp_path, ["Art"], ["Ruler"], 14)
    assert (counts["Art"]["Drill"], counts["Art"]["Ruler"]) == (15, 15)
    lines = command("verify", "office-home", tmp_path).stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith("│ art ")]
    assert not [row for row in rows if "Drill" in row]
    assert [row[5:8:2] for row in rows if "Ruler" in row] == [["14", "15"]]
    assert rows[-1][3:8:2] == ["all", "29", "2427"]


def test_json_has_rows_by_name(tmp_path: Path) -> None:
    found = json.loads(command("verify", "pacs", dassl_pacs(tmp_path), "--json").stdout)
    assert found["is_complete"] is False
    assert found["rows"][0] == {
        "domain": "art_painting",
        "label": "dog",
        "found": 3,
        "official": 379,
    }
    assert found["parts"][1]["part"] == "validation"
    assert found["layout"] == "domain/class/image with list files"


def test_list_names_every_benchmark_with_its_source_and_licence() -> None:
    shown = command("list").stdout
    for name in ("pacs", "vlcs", "office-home", "digits-dg", "digits-dg-rebuilt"):
        assert f"\n{name}: " in shown
    assert shown.count("licence: ") == 5
    assert "15,588" in shown


def test_list_as_json_has_numbers() -> None:
    found = {each["name"]: each for each in json.loads(command("list", "--json").stdout)}
    assert found["vlcs"]["images"] == 10729
    assert found["vlcs"]["domains"]["sun"] == 3282
