"""The confounded digits as a data set: domains of differing strength, and three to test on."""

from pathlib import Path

import pytest
import torch
from tests.support.runs import run_cli
from torch import Tensor

import cicf
from cicf.config import DataConfig, make_config
from cicf.core import ConfigError
from cicf.data.confounded import SOURCES, TARGETS, confounded_digits, confounded_domains
from cicf.data.domains import PARTS, DomainDataset
from cicf.experiment.data import load_data
from cicf.results.folder import RunFolder

NAMES = {
    ("demo", ""): "demo-cicf-0-2fc8218a51",
    ("demo", "blended"): "demo-blended-cicf-0-190830f0cd",
    ("pacs", "sketch"): "pacs-sketch-cicf-0-7c32f06f81",
    ("photos", ""): "photos-cicf-0-a02914ea14",
}
"""Names that runs had before this data set; golden, as nothing but the code can say them."""


@pytest.fixture(scope="module")
def data() -> DomainDataset:
    return confounded_domains()


def hue(data: DomainDataset) -> Tensor:
    """Return which of the ten colours lies behind each digit, read off a corner."""
    assert isinstance(data.images, Tensor)
    corner = data.images[:, :, :3, :3].double().mean(dim=(2, 3))
    first = confounded_digits(strength=1.0).dataset()
    assert isinstance(first.images, Tensor)
    known = first.images[:, :, :3, :3].double().mean(dim=(2, 3))
    centres = torch.stack([known[first.y == k].mean(dim=0) for k in range(10)])
    unit, target = (each / each.norm(dim=1, keepdim=True) for each in (corner, centres))
    return torch.cdist(unit, target).argmin(dim=1)


@pytest.mark.parametrize(
    ("name", "share"),
    [("weak", 0.82), ("middle", 0.91), ("strong", 1.0), ("tied", 0.91), ("independent", 0.1)],
)
def test_colour_is_the_label_in_the_share_of_its_domain(
    data: DomainDataset, name: str, share: float
) -> None:
    """Of those that are drawn at random, one in ten is the label as well."""
    here = data.of(name)
    assert float((hue(here) == here.y).double().mean()) == pytest.approx(share, abs=0.04)


def test_reversed_domain_turns_the_relation_around(data: DomainDataset) -> None:
    here = data.of("reversed")
    assert float((hue(here) == 9 - here.y).double().mean()) == pytest.approx(0.91, abs=0.04)


def test_sources_share_no_digit_and_targets_show_the_same_ones(data: DomainDataset) -> None:
    assert data.domains == (*SOURCES, *TARGETS)
    assert sum(len(data.of(name)) for name in SOURCES) == 1198
    assert [len(data.of(name)) for name in TARGETS] == [599] * 3
    assert data.masks is not None
    masks = data.masks.flatten(1)
    assert len(masks[data.domain < 3].unique(dim=0)) > 1190
    for name in TARGETS:
        assert torch.equal(data.of(name).y, data.of("tied").y)
        assert torch.equal(data.of(name).masks, data.of("tied").masks)


def test_targets_are_marked_to_be_tested_on(data: DomainDataset) -> None:
    assert data.part is not None
    is_test = data.part == PARTS.index("test")
    assert torch.equal(is_test, data.domain >= 3)
    assert (data.part[~is_test] == -1).all()


@pytest.mark.parametrize("strength", [0.0, 0.05, 1.0])
def test_domains_stay_shares_at_the_ends(strength: float) -> None:
    data = confounded_domains(strength=strength)
    found = [(hue(data.of(name)) == data.of(name).y).double().mean() for name in SOURCES]
    assert sum(found) / 3 == pytest.approx(strength + 0.1 * (1 - strength), abs=0.04)


def test_config_says_what_none_means() -> None:
    config = cicf.recipe("confounded", {"data": {"strength": None}})
    assert (config.data.strength, config.data.confounder) == (0.9, "colour")
    assert config.identity()["data"]["strength"] == 0.9
    assert make_config(config.identity()) == config
    other = cicf.recipe("confounded", {"data": {"strength": 0.5}})
    assert other.run_id("x") != config.run_id("x")


def test_options_reach_the_data() -> None:
    chosen = DataConfig(name="confounded", strength=0.5, confounder="background")
    found = load_data(chosen).data
    expected = confounded_domains(strength=0.5, kind="background")
    assert isinstance(found.images, Tensor)
    assert torch.equal(found.images, expected.images)


@pytest.mark.parametrize(("data", "target"), list(NAMES))
def test_runs_on_other_data_keep_their_names(data: str, target: str) -> None:
    over = {"data": {"target": target}} if target else {}
    assert cicf.recipe(data, over).run_id("x") == NAMES[data, target]


def test_a_folder_of_that_name_is_a_folder() -> None:
    config = cicf.recipe("confounded", {"data": {"root": "/d"}})
    assert config.model.name == "resnet18"
    assert config.run_id("x") == "confounded-cicf-0-0ee2127ceb"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("strength=0.5", "data.strength=0.5 belongs to the data 'confounded', not to 'demo'"),
        ("confounder=colour", "data.confounder='colour' belongs to the data 'confounded'"),
    ],
)
def test_options_of_it_are_refused_elsewhere(setting: str, sentence: str) -> None:
    ended = run_cli("train", "demo", "--set", f"data.{setting}")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert sentence in ended.err


@pytest.mark.parametrize("values", [{"strength": 1.5}, {"confounder": "smell"}])
def test_values_that_cannot_be_are_refused(values: dict[str, object]) -> None:
    name, value = next(iter(values.items()))
    with pytest.raises(ConfigError, match=f"data.{name}={value!r} cannot be"):
        cicf.recipe("confounded", {"data": values})


@pytest.mark.parametrize("method", ["erm", "maml", "cicf"])
def test_every_method_trains_on_it_and_is_tested_on_all_targets(
    method: str, tmp_path: Path
) -> None:
    ended = run_cli(
        *("train", "confounded", "--method", method, "--epochs", 1, "--out", tmp_path / "run"),
        *("--model", "tests.support.runs:tiny_net", "--json"),
        *("--set", "data.image_size=16", "--set", "outer.size=240", "--set", "inner.size=12"),
    )
    assert ended.code == 0, ended.err
    record = RunFolder(tmp_path / "run").record()
    assert record.setup.protocol.tested == TARGETS
    assert list(record.setup.sources) == list(SOURCES)


def test_misspelt_name_is_guessed() -> None:
    assert "did you mean 'confounded'?" in run_cli("train", "confunded").err


def test_list_names_it() -> None:
    assert "confounded: digits with a known confounder" in run_cli("data", "list").out
