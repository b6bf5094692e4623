"""The real PACS and the stand-in for Digits-DG, from their archives to data ready to train on."""

import os
import zipfile
from pathlib import Path

import pytest
from tests.support.runs import SIZE, TINY
from tests.support.shared import once

import cicf
from cicf.core import DataError
from cicf.data.benchmarks import benchmark, load_benchmark
from cicf.data.benchmarks.importing import Imported, import_benchmark
from cicf.data.benchmarks.verify import Verification, verify
from cicf.data.domains import PARTS
from cicf.data.fingerprint import fingerprint
from cicf.results import Record

pytestmark = [pytest.mark.real, pytest.mark.slow]


def found(archive: str) -> Path:
    path = Path(os.environ.get("CICF_DATA", "")) / archive
    if not path.is_file():
        pytest.skip(f"CICF_DATA names no folder with {archive}")
    return path


def from_archive(name: str, source: Path, folder: Path) -> Imported:
    def imported() -> Imported:
        return import_benchmark(benchmark(name), source, folder / name, on_image=lambda *_: None)

    return once(folder / f"{name}.pickle", imported)


def part_of(source: Path, target: Path) -> Path:
    """Write an archive with every eighth image of another; parts and classes keep their shares."""
    with zipfile.ZipFile(source) as whole, zipfile.ZipFile(target, "w") as part:
        names = sorted(name for name in whole.namelist() if name.endswith((".jpg", ".png")))
        for name in names[::8]:
            part.writestr(name, whole.read(name))
    return target


@pytest.fixture(scope="module")
def pacs(shared_folder: Path) -> Imported:
    """Return PACS with the lists of its authors, imported from an archive."""
    return from_archive("pacs", found("pacs_128.zip"), shared_folder)


@pytest.fixture(scope="module")
def verified_pacs(pacs: Imported, shared_folder: Path) -> Verification:
    """Return what is found of PACS."""
    return once(shared_folder / "verified.pickle", lambda: verify(benchmark("pacs"), pacs.folder))


@pytest.fixture(scope="module")
def digits(shared_folder: Path) -> Imported:
    """Return an eighth of the stand-in for Digits-DG, imported from an archive."""
    whole, part = found("digits_dg_rebuilt.zip"), shared_folder / "digits.zip"
    once(shared_folder / "part.pickle", lambda: part_of(whole, part))
    return from_archive("digits-dg-rebuilt", part, shared_folder)


def trained(name: str, target: str, folder: Path | None, out: Path) -> Record:
    """Return a short run of plain training with the small network."""
    over = {
        "data": {"root": folder, "target": target, "image_size": SIZE, "normalise": "half"},
        "model": {"name": TINY, "weights": "none"},
        "method": {"name": "erm"},
        "optim": {"lr": 0.1, "momentum": 0.9},
        "outer": {"size": 84},
        "epochs": 1,
    }
    return cicf.train(cicf.recipe(name, over, preset="cpu"), out=out)


def test_pacs_is_complete(verified_pacs: Verification) -> None:
    assert verified_pacs.problems == ()
    assert sum(row.found for row in verified_pacs.rows) == 9991


def test_lists_of_pacs_are_the_official_split(verified_pacs: Verification) -> None:
    assert [row.found for row in verified_pacs.parts] == [
        *(1840, 208),
        *(2107, 237),
        *(1499, 171),
        *(3531, 398),
    ]


def test_lists_of_pacs_count_from_1(pacs: Imported) -> None:
    assert pacs.notes == ("labels in the list files count from 1",)


def test_sketches_are_jpeg_under_the_name_of_png(verified_pacs: Verification) -> None:
    lying = [note for note in verified_pacs.notes if "an ending that is not" in note]
    assert [note.split()[0] for note in lying] == ["3929"]


def test_pacs_is_ready_to_train_on(pacs: Imported) -> None:
    data, notes = load_benchmark(benchmark("pacs"), pacs.folder)
    assert notes == ()
    assert fingerprint(data) == pacs.fingerprint
    assert data.without("sketch").y.bincount().tolist() == [957, 914, 813, 505, 724, 863, 1286]
    held = data.of("photo").part == PARTS.index("validation")
    assert data.of("photo").y[held].bincount().tolist() == [19, 21, 19, 19, 20, 29, 44]


def test_fifth_of_pacs_is_trained_on_by_its_official_split(pacs: Imported, tmp_path: Path) -> None:
    head, *rows = (pacs.folder / "manifest.csv").read_text().splitlines()
    part = pacs.folder / "fifth.csv"
    part.write_text("\n".join([head, *rows[::5]]) + "\n")
    record = trained(str(part), "photo", None, tmp_path / "run")
    held, kept = record.setup.validation, record.setup.sources
    assert kept.keys() == held.keys() == {"art_painting", "cartoon", "sketch"}
    assert sum(kept.values()) + sum(held.values()) == pytest.approx(8321 / 5, abs=5)
    assert sum(held.values()) / sum(kept.values()) == pytest.approx(843 / 7478, rel=0.15)
    assert record.setup.protocol.split == "the given lists"
    assert record.last.test is not None
    assert record.last.test.theta["photo"].total == pytest.approx(1670 / 5, abs=2)


def test_rebuilt_digits_are_trained_on_by_a_manifest(digits: Imported, tmp_path: Path) -> None:
    record = trained(str(digits.folder / "manifest.csv"), "mnist_m", None, tmp_path / "run")
    assert record.setup.sources == {"mnist": 600, "svhn": 600, "syn": 600}
    assert record.setup.protocol.split == "the given lists"
    assert record.last.test is not None
    assert record.last.test.theta["mnist_m"].total == 750


def test_rebuilt_digits_do_not_pass_for_the_official_ones(digits: Imported) -> None:
    with pytest.raises(DataError, match="holds 'digits-dg-rebuilt', imported under that name"):
        load_benchmark(benchmark("digits-dg"), digits.folder)


def test_rebuilt_digits_are_split(digits: Imported) -> None:
    data, _ = load_benchmark(benchmark("digits-dg-rebuilt"), digits.folder)
    assert (len(data), fingerprint(data)) == (3000, digits.fingerprint)
    assert data.part is not None
    for domain in data.domains:
        parts = data.of(domain).part
        held = int((parts == PARTS.index("validation")).sum())
        assert (len(parts) - held, held) == (600, 150)
        assert data.of(domain).y.bincount().tolist() == [75] * 10
