"""No image of the target reaches a network before training has ended."""

from pathlib import Path

import pytest
from tests.support.tiny import config, write_images
from torch import Tensor

import cicf
from cicf.data.domains import DomainDataset
from cicf.data.images import ImageFiles
from cicf.data.views import View
from cicf.experiment import events
from cicf.results import Record, RunFolder
from cicf.training import EpochEnded


class SeenError(Exception):
    """Says that an image of the target was asked for."""


def names(data: DomainDataset, places: Tensor) -> set[str]:
    return {data.domains[number] for number in data.domain[places].tolist()}


@pytest.mark.parametrize("method", ["erm", "maml", "cicf"])
@pytest.mark.parametrize("keeps_epochs", [False, True])
def test_target_cannot_be_read_until_training_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, keeps_epochs: bool
) -> None:
    images = write_images(tmp_path / "images")
    run = config(images, method={"name": method}, epochs=2, keeps_epochs=keeps_epochs)
    reads = {"sources": 0, "target": 0}
    is_training = False

    def read(self: ImageFiles, index: int) -> Tensor:
        kind = "target" if "sketch" in self.paths[index].parts else "sources"
        if kind == "target" and is_training:
            raise SeenError(self.paths[index])
        reads[kind] += 1
        return original(self, index)

    def view(self: DomainDataset, view: View, places: Tensor) -> Tensor:
        if is_training and "sketch" in names(self, places):
            raise SeenError(places)
        return original_view(self, view, places)

    original, original_view = ImageFiles.__getitem__, DomainDataset.view
    monkeypatch.setattr(ImageFiles, "__getitem__", read)
    monkeypatch.setattr(DomainDataset, "view", view)
    for event in events(run, out=tmp_path / "run"):
        if isinstance(event, RunFolder):
            is_training = True
        if isinstance(event, EpochEnded) and event.epoch == 2:
            assert reads["target"] == 0
            is_training = False
    assert isinstance(event, Record)
    assert reads["sources"] > 0
    assert reads["target"] > 0


def test_guard_of_the_test_above_notices_a_network_that_sees_the_target(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = write_images(tmp_path / "images")
    original = cicf.experiment.build.make_split

    def leaking(run: cicf.RunConfig, data: DomainDataset) -> object:
        split = original(run, data)
        return split._replace(validation=split.test)

    def view(self: DomainDataset, view: View, places: Tensor) -> Tensor:
        if "sketch" in names(self, places):
            raise SeenError(places)
        return original_view(self, view, places)

    original_view = DomainDataset.view
    monkeypatch.setattr(DomainDataset, "view", view)
    monkeypatch.setattr("cicf.experiment.build.make_split", leaking)
    with pytest.raises(SeenError):
        cicf.train(config(images, epochs=1), out=tmp_path / "run")
