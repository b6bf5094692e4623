"""What a run says of how its numbers came about: protocol, kept epochs, the oracle."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from tests.support.tiny import config, write_images

import cicf
from cicf.core import ConfigError, DataError
from cicf.experiment.data import load_data
from cicf.results import RunFolder
from cicf.results.record import pooled


@pytest.fixture
def images(tmp_path: Path) -> Path:
    return write_images(tmp_path / "images")


def test_run_names_its_protocol(images: Path, tmp_path: Path) -> None:
    record = cicf.train(config(images, epochs=1), out=tmp_path / "run")
    protocol = record.setup.protocol
    assert (protocol.name, protocol.tested) == ("leave-one-domain-out", ("sketch",))
    assert protocol.kind == (
        "leave-one-domain-out; sources split by 25 % of every class, drawn by seed; "
        "all images of the target"
    )


def test_single_source_trains_on_one_domain_and_scores_each_other(
    images: Path, tmp_path: Path
) -> None:
    run = config(images, epochs=1, data={"target": None, "source": "photo"})
    record = cicf.train(run, out=tmp_path / "run")
    assert set(record.setup.sources) == {"photo"}
    assert record.last.test is not None
    assert {name: s.total for name, s in record.last.test.theta.items()} == {
        "art": 24,
        "sketch": 24,
    }
    assert record.setup.protocol.name == "single-source"


def test_target_and_source_exclude_each_other(images: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        cicf.train(config(images, data={"source": "photo"}), out=tmp_path / "run")


def test_place_of_the_images_is_no_part_of_a_run(images: Path, tmp_path: Path) -> None:
    first = config(images).model_copy(update={})
    moved = first.model_copy(update={"data": first.data.model_copy(update={"root": tmp_path})})
    assert first.run_id("x") == moved.run_id("x")
    assert first.run_id("x") != first.run_id("y")


def test_oracle_is_the_kept_epoch_that_is_best_on_the_target(images: Path, tmp_path: Path) -> None:
    run = config(images, epochs=4, keeps_epochs=True, optim={"lr": 0.3})
    record = cicf.train(run, out=tmp_path / "run")
    tested = [pooled(each.test.of(record.deploy)).percent for each in record.epochs]
    assert [each.epoch for each in record.epochs] == [1, 2, 3, 4]
    assert record.accuracy(at="oracle") == max(tested)
    assert record.epochs[-1] == record.last
    assert record.best in record.epochs


def test_run_without_kept_epochs_has_no_oracle(images: Path, tmp_path: Path) -> None:
    record = cicf.train(config(images, epochs=1), out=tmp_path / "run")
    assert record.epochs == ()
    with pytest.raises(LookupError, match="kept no epochs"):
        record.scored("oracle")


def test_kept_networks_are_those_of_their_epochs(images: Path, tmp_path: Path) -> None:
    cicf.train(config(images, epochs=2, keeps_epochs=True), out=tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    last = load_file(folder.weights_file("last", "theta_dagger"))
    kept = load_file(folder.weights_file(2, "theta_dagger"))
    first = load_file(folder.weights_file(1, "theta_dagger"))
    assert all(bool((last[name] == kept[name]).all()) for name in last)
    assert any(bool((last[name] != first[name]).any()) for name in last)


def test_interrupted_run_with_kept_epochs_ends_with_the_same_record(
    images: Path, tmp_path: Path
) -> None:
    run = config(images, epochs=3, keeps_epochs=True)
    whole = json.loads(cicf.train(run, out=tmp_path / "whole").model_dump_json())
    for told, _ in enumerate(cicf.experiment.events(run, out=tmp_path / "cut")):
        if told == 11:
            break
    again = json.loads(cicf.train(run, out=tmp_path / "cut", resumes=True).model_dump_json())
    for record in (whole, again):
        del record["seconds"], record["peak_memory"]
    assert again == whole


def test_images_are_looked_at_before_training_unless_told_not_to(
    images: Path, tmp_path: Path
) -> None:
    broken = next((images / "photo" / "left").iterdir())
    broken.write_bytes(broken.read_bytes()[:60])
    with pytest.raises(DataError, match=f"1 of 72 images cannot be read, the first is {broken}"):
        cicf.train(config(images, epochs=1), out=tmp_path / "run")
    machine = {"checks_images": False}
    with pytest.raises(DataError, match=f"{broken} cannot be read as an image"):
        cicf.train(config(images, epochs=1, machine=machine), out=tmp_path / "unchecked")


def test_images_that_are_left_out_are_found_even_where_others_are_not_looked_at(
    images: Path,
) -> None:
    broken = next((images / "photo" / "left").iterdir())
    broken.write_bytes(broken.read_bytes()[:60])
    data = config(images, data={"skips_unreadable": True}).data
    assert len(load_data(data, checks_images=False).data) == 71
