"""Inside the networks: Grad-CAMs and points where weights and images are there, else reasons."""

import base64
from pathlib import Path
from shutil import copytree

import pytest
from tests.support.pages import ODD_CLASS, odd_runs
from tests.support.records import run, write

from cicf.report.page import Section, make_sections
from cicf.report.page_networks import FAST, MOST_NETWORKS, Amount, network_views
from cicf.report.page_views import Views
from cicf.results.runs import FoundRun, read_runs

FEW = Amount(images=2, points=12)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with images and the runs that were trained on them; nobody writes to it."""
    folder = tmp_path_factory.mktemp("trained")
    odd_runs(folder)
    return folder


def section(folder: Path) -> Section:
    (found,) = make_sections(read_runs([folder]).found).sections
    return found


def seen(found: Section, amount: Amount = FEW, *, root: Path | None = None) -> Views:
    *words, views = network_views(found, amount, root=root)
    assert all(isinstance(each, str) for each in words)
    assert isinstance(views, Views)
    return views


def test_every_image_has_a_map_of_every_row(place: Path) -> None:
    (case,) = seen(section(place / "runs"), root=place).cases
    assert case.tested == ("<c>",)
    assert len(case.looks) == 2
    for look in case.looks:
        assert look.domain == "<c>"
        assert look.class_ in (ODD_CLASS, "two")
        assert [each.label for each in look.maps] == ["ERM", "ERM+CICF"]
        for each in look.maps:
            assert len(base64.b64decode(each.values)) == each.side**2
            assert each.is_right == (each.predicted == look.class_)
            assert 0 <= each.probability <= 1
            assert each.picture.startswith("data:image/png;base64,")


def test_all_networks_see_the_same_points_inside_of_a_square(place: Path) -> None:
    (case,) = seen(section(place / "runs"), root=place).cases
    assert case.clouds is not None
    assert set(case.clouds.domains) == {"a", "b", "<c>"}
    for cloud in case.clouds.clouds:
        assert len(cloud.points) == len(case.clouds.images) == 12
        assert all(0 <= value <= 1 for point in cloud.points for value in point)


def test_nothing_is_missing_where_all_is_at_hand(place: Path) -> None:
    assert seen(section(place / "runs"), root=place).missing == ()


def test_what_was_seen_is_seen_again(place: Path) -> None:
    found = section(place / "runs")
    assert seen(found, root=place) == seen(found, root=place)


def test_a_network_that_is_gone_is_missing_with_the_reason(place: Path, tmp_path: Path) -> None:
    runs = copytree(place / "runs", tmp_path / "runs")
    (next(runs.glob("*-erm")) / "model.safetensors").unlink()
    views = seen(section(runs), root=place)
    assert "the network of ERM is not shown: " in views.missing[0]
    assert [label for label, _ in views.cases[0].runs] == ["ERM+CICF"]


def test_images_that_are_gone_leave_no_networks(place: Path, tmp_path: Path) -> None:
    views = seen(section(place / "runs"), root=tmp_path)
    assert views.cases == ()
    assert f"no networks are shown: {tmp_path / 'images.csv'}" in views.missing[0]


def test_other_images_of_the_same_name_are_refused(place: Path, tmp_path: Path) -> None:
    other = copytree(place, tmp_path / "other")
    first, second = sorted((other / "images" / "a" / "one").iterdir())[:2]
    first.write_bytes(second.read_bytes())
    views = seen(section(place / "runs"), root=other)
    assert views.cases == ()
    assert "at hand have the fingerprint" in views.missing[0]


def recorded(count: int) -> list[FoundRun]:
    return [
        run(70.0 + place, method="cicf", options={"method.alpha": float(place)}, path=f"{place}")
        for place in range(count)
    ]


def test_more_networks_than_can_be_compared_are_named(tmp_path: Path) -> None:
    for each in (*recorded(MOST_NETWORKS), run(60.0)):
        write(tmp_path, each)
    views = seen(section(tmp_path))
    # ERM is a method of its own, so one of the others has to go.
    assert views.missing[0].startswith("the networks of ERM+CICF (method.alpha=5.0) are not shown")


def test_to_be_fast_is_to_leave_targets_out(tmp_path: Path) -> None:
    for target in ("photo", "sketch"):
        write(tmp_path, run(70.0, target=target))
    views = seen(section(tmp_path), FAST)
    assert views.missing[0] == "sketch is left out, to be fast"
