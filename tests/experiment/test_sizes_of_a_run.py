"""The sizes of a run's batches where domains, tasks or groups share them, and what is said."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.tiny import config, write_images

import cicf
from cicf.core import ConfigError
from cicf.results import RunFolder

BY_DOMAIN, GROUPED = "tests.support.tiny:ByDomainConfig", "tests.support.tiny:GroupedConfig"


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def setup_of(images: Path, folder: Path, **over: Any) -> Any:
    return cicf.train(config(images, epochs=1, **over), out=folder).setup


@pytest.mark.parametrize(
    ("method", "sizes", "expected", "note"),
    [
        (BY_DOMAIN, (12, 6), (None, 6), None),
        (BY_DOMAIN, (12, 7), (None, 6), "outer.size is 6 instead of 7, because domains share it"),
        (GROUPED, (12, 7), (12, 7), None),
        (GROUPED, (14, 7), (12, 7), "inner.size is 12 instead of 14, because it holds whole group"),
        ("maml", (12, 6), (12, 6), None),
        (
            "maml",
            (13, 7),
            (12, 6),
            "inner.size and outer.size are 12 and 6 instead of 13 and 7, because 2 tasks share the",
        ),
    ],
)
def test_sizes_are_evened_out_and_a_note_says_why(
    images: Path,
    tmp_path: Path,
    method: str,
    sizes: tuple[int, int],
    expected: tuple[int | None, int],
    note: str | None,
) -> None:
    found = setup_of(
        images,
        tmp_path / "run",
        method={"name": method},
        inner={"size": sizes[0]},
        outer={"size": sizes[1]},
    )
    assert (found.inner_size, found.outer_size) == expected
    said = [each for each in found.notes if "instead" in each]
    assert len(said) == (note is not None)
    assert all(each.startswith(note or "") for each in said)
    assert found.steps_per_epoch == 36 // expected[1]


def test_groups_reach_the_method(images: Path, tmp_path: Path) -> None:
    setup_of(images, tmp_path / "run", method={"name": GROUPED}, inner={"size": 9})
    rows = [row for row in RunFolder(tmp_path / "run").metrics() if row["kind"] == "step"]
    assert {row["count"] for row in rows} == {8}


def test_a_loss_by_domain_may_be_taken_inside_of_cicf(images: Path, tmp_path: Path) -> None:
    method = {"name": "cicf", "base": BY_DOMAIN}
    found = setup_of(images, tmp_path / "run", method=method, outer={"size": 7})
    assert (found.inner_size, found.outer_size) == (12, 6)
    assert "outer.size is 6 instead of 7, because domains share it evenly" in found.notes


def test_domains_too_small_for_the_size_are_refused_before_training(
    images: Path, tmp_path: Path
) -> None:
    run = config(images, method={"name": BY_DOMAIN}, outer={"size": 1})
    with pytest.raises(
        ConfigError, match=r"outer\.size=1 is 0 images for each block of one domain"
    ):
        cicf.train(run, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
