"""Which images are shown: balanced, by seed, unseen where that can be known."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runs import folder_of_images
from tests.support.scenes import CLASSES, loaded_run, masked_images

from cicf import ConfigError, DataError
from cicf.data.folder import load_folder
from cicf.report import chosen
from cicf.report.chosen import (
    check_agreement,
    chosen_images,
    files_as_data,
    image_name,
    role_of,
)


@given(st.integers(1, 15), st.integers(0, 3))
def test_choice_is_balanced_over_classes(per_domain: int, seed: int) -> None:
    data = masked_images()
    places = chosen_images(data, ["sketch", "art"], per_domain=per_domain, seed=seed)
    assert len(set(places)) == len(places) == 2 * min(12, per_domain)
    for domain in (0, 1):
        here = [place for place in places if data.domain[place] == domain]
        counts = Counter(data.y[here].tolist())
        assert max(counts.values()) - min(counts[c] for c in range(3)) <= 1
        assert [*data.y[here]] == sorted(data.y[here])
    assert data.domain[places].tolist() == sorted(data.domain[places].tolist(), reverse=True)


def test_choice_depends_on_the_seed_alone() -> None:
    data = masked_images(60)
    first, again, other = (chosen_images(data, ["art"], per_domain=9, seed=s) for s in (0, 0, 1))
    assert first == again != other


def test_fewer_are_part_of_more() -> None:
    data = masked_images(60)
    few, many = (set(chosen_images(data, ["art"], per_domain=n)) for n in (7, 40))
    assert few < many


def test_rare_class_gives_all_it_has() -> None:
    data = masked_images(12)
    data.y[:] = torch.tensor([0] * 11 + [1] + [2] * 12)
    places = chosen_images(data, ["art"], per_domain=4)
    assert sorted(data.y[places].tolist()) == [0, 0, 0, 1]


def test_images_are_of_the_test_part_where_there_is_one() -> None:
    data = masked_images(6)
    part = torch.tensor([0, 0, 1, 2, 2, 2] + [0] * 6)
    places = chosen_images(replace(data, part=part), ["art", "sketch"], per_domain=6)
    assert sorted(places) == [3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_no_images_and_unknown_domains_are_refused() -> None:
    data = masked_images()
    with pytest.raises(ConfigError, match="at least 1"):
        chosen_images(data, ["art"], per_domain=0)
    with pytest.raises(DataError, match="did you mean 'sketch'"):
        chosen_images(data, ["sketsch"], per_domain=1)
    with pytest.raises(DataError, match="'art' has no images"):
        chosen_images(data.of("sketch"), ["art"], per_domain=1)


def test_images_are_named_by_file_or_by_number(tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path / "pets", ("art", "photo"), CLASSES, 2)
    assert image_name(load_folder(folder), 3) == "art/dog/01.png"
    assert image_name(masked_images(), 13) == "sketch 13"


def test_folder_of_a_file_names_its_class_where_it_is_one(tmp_path: Path) -> None:
    folder = folder_of_images(tmp_path / "pets", (), ("dog", "other"), 1)
    data = files_as_data([folder / "dog" / "00.png", folder / "other" / "00.png"], CLASSES)
    assert data.y.tolist() == [1, -1]
    with pytest.raises(DataError, match="is no file"):
        files_as_data([folder / "dog"], CLASSES)


def test_role_of_a_domain_is_what_the_run_did_with_it() -> None:
    run = loaded_run(target="sketch")
    assert [role_of(run, name) for name in ("art", "sketch", "photo")] == [
        "source",
        "target",
        "other",
    ]


def test_a_domain_of_which_images_were_seen_is_no_target() -> None:
    """Where some images of every domain are held out, domains never trained on are targets."""
    run = loaded_run(target="sketch")
    held = run.setup.protocol.model_copy(
        update={"name": "hold-out", "tested": ("art", "sketch", "photo")}
    )
    run = replace(run, setup=run.setup.model_copy(update={"protocol": held}))
    # By its module, or pytest would take the name for that of a test.
    assert chosen.tested(run) == ("sketch", "photo")
    assert role_of(run, "art") == "source"


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        (loaded_run(classes=("cat", "dog", "cow")), "b knows other classes than a"),
        (loaded_run(fingerprint="else"), r"b was trained on other images \(else\) than a \(same\)"),
        (loaded_run(target="photo"), "b is tested on photo and a on sketch"),
    ],
)
def test_runs_that_do_not_compare_are_refused(other: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        check_agreement({"a": loaded_run(), "b": other}, must_share_data=True)  # type: ignore[dict-item]


def test_runs_of_other_data_compare_on_data_that_are_named() -> None:
    runs = {"a": loaded_run(), "b": loaded_run(fingerprint="else", classes=("owl", "dog", "cat"))}
    check_agreement(runs, must_share_data=False)
