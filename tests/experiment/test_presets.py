"""Presets: the paper's values where it has any, and what is laid over them."""

import itertools
import math
import tomllib
from typing import Any

import pytest
from tests.support.runs import run_cli

import cicf
from cicf.core import ConfigError
from cicf.experiment.presets import PAPER, PRESETS

PRINTED = {
    # data: network, α, β; then M, M^l and epochs are 256, 84, 60 everywhere
    "pacs": ("resnet18", 0.05, 0.01),
    "vlcs": ("alexnet", 0.005, 0.001),
    "office-home": ("resnet18", 0.001, 0.001),
    "digits-dg": ("digits_cnn", 0.5, 0.1),
}
INFINITE = float("inf")


def preset(name: str, data: str, method: str = "cicf", augment: str = "basic") -> dict[str, Any]:
    over = {"method": {"name": method}, "data": {"augment": augment}}
    return cicf.recipe(data, over, preset=name).model_dump()


@pytest.mark.parametrize("data", list(PRINTED))
@pytest.mark.parametrize("name", ["paper", "paper-literal"])
@pytest.mark.parametrize("method", ["cicf", "maml"])
def test_paper_has_the_printed_values(data: str, name: str, method: str) -> None:
    found = preset(name, data, method)
    model, alpha, beta = PRINTED[data]
    assert found["model"]["name"] == model
    assert (found["method"]["alpha"], found["optim"]["lr"]) == (alpha, beta)
    assert (found["inner"]["size"], found["outer"]["size"], found["epochs"]) == (256, 84, 60)
    assert found["clusters"]["per_class"] == 3


@pytest.mark.parametrize("data", list(PRINTED))
@pytest.mark.parametrize("method", ["erm", "maml", "cicf"])
@pytest.mark.parametrize("augment", ["basic", "autoaugment"])
def test_paper_literal_is_the_paper_without_the_safeguard(
    data: str, method: str, augment: str
) -> None:
    with_it, without = (preset(name, data, method, augment) for name in ("paper", "paper-literal"))
    assert with_it["optim"].pop("clip") == 2.0
    assert without["optim"].pop("clip") == INFINITE
    if method != "erm":
        assert with_it["method"].pop("max_step_ratio") == 0.01
        assert without["method"].pop("max_step_ratio") == INFINITE
    assert with_it == without
    assert with_it["data"]["augment"] == augment


@pytest.mark.parametrize(
    ("data", "policy"), [("pacs", "imagenet"), ("vlcs", "imagenet"), ("digits-dg", "svhn")]
)
def test_policy_is_that_of_the_kind_of_images(data: str, policy: str) -> None:
    assert preset("paper", data)["data"]["policy"] == policy


def test_digits_are_not_mirrored() -> None:
    assert not preset("paper", "digits-dg")["data"]["flips"]
    assert preset("paper", "pacs")["data"]["flips"]


@pytest.mark.parametrize(("data", "share"), [("pacs", 0.1), ("digits-dg", 0.2)])
def test_share_that_validates_is_that_of_the_benchmark(data: str, share: float) -> None:
    assert preset("paper", data)["data"]["validation"] == share


def test_another_network_keeps_the_values_of_the_data() -> None:
    config = cicf.recipe("pacs", {"model": {"name": "resnet50"}}, preset="paper")
    assert (config.model.name, config.optim.lr) == ("resnet50", 0.01)


def test_users_own_values_come_last() -> None:
    config = cicf.recipe("pacs", {"optim": {"lr": 0.5}, "inner": {"size": 8}}, preset="paper")
    assert (config.optim.lr, config.inner.size, config.outer.size) == (0.5, 8, 84)


@pytest.mark.parametrize(
    ("data", "given", "ours"),
    [("office-home", "Real World", "real_world"), ("PACS", "A", "art_painting")],
)
def test_benchmark_and_domain_go_by_our_names(data: str, given: str, ours: str) -> None:
    config = cicf.recipe(data, {"data": {"target": given}})
    assert (config.data.name, config.data.target) == (data.lower(), ours)


@pytest.mark.parametrize("name", ["paper", "paper-literal"])
@pytest.mark.parametrize("data", ["demo", "confounded", "photos"])
def test_paper_has_no_values_for_other_data(name: str, data: str) -> None:
    with pytest.raises(ConfigError, match=f"--preset '{name}' has values for pacs"):
        cicf.recipe(data, preset=name)


def test_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean 'paper'"):
        cicf.recipe("pacs", preset="papr")


@pytest.mark.parametrize(
    ("data", "name"),
    [
        *itertools.product(PAPER, PRESETS),
        *itertools.product(["demo", "confounded"], ["recommended", "cpu"]),
    ],
)
@pytest.mark.parametrize("method", ["erm", "maml", "cicf"])
def test_printed_preset_is_a_file_that_gives_the_same_config(
    data: str, name: str, method: str
) -> None:
    printed = run_cli("preset", name, "--data", data, "--method", method)
    assert printed.code == 0, printed.err
    expected = cicf.recipe(data, {"method": {"name": method}}, preset=name)
    assert cicf.recipe(data, tomllib.loads(printed.out)) == expected


def test_printed_preset_says_what_it_is_and_how_it_is_used() -> None:
    printed = run_cli("preset", "paper", "--data", "vlcs").out
    assert printed.startswith("# Preset paper: the paper's values")
    assert "# cicf train vlcs --root DIR --target DOMAIN --config THIS_FILE" in printed


@pytest.mark.parametrize("data", list(PRINTED))
def test_what_the_paper_does_not_print_is_that_of_its_protocol(data: str) -> None:
    is_digits = data == "digits-dg"
    assert preset("paper", data)["optim"] == {
        "lr": PRINTED[data][2],
        "momentum": 0.0 if is_digits else 0.9,
        "weight_decay": 5e-4,
        "schedule": "step" if is_digits else "cosine",
        "step_epochs": 20,
        "clip": 2.0,
    }


@pytest.mark.parametrize(
    ("data", "method", "most", "epochs"),
    [("pacs", "cicf", 64, 30), ("digits-dg", "cicf", 256, 9), ("digits-dg", "maml", 64, 9)],
)
def test_recommended_is_as_it_is_described(data: str, method: str, most: int, epochs: int) -> None:
    found = preset("recommended", data, method)
    assert (found["inner"]["size"], found["inner"]["most"]) == (None, most)
    assert found["epochs"] == epochs


def test_two_cores_get_through_the_small_version_of_digits() -> None:
    found = preset("cpu", "digits-dg", "cicf")
    assert (found["inner"]["most"], found["outer"]["most"], found["epochs"]) == (64, 84, 5)


def test_recommended_virtual_steps_are_no_shorter_than_the_steps() -> None:
    found = preset("recommended", "digits-dg")
    assert found["method"]["alpha"] >= found["optim"]["lr"]
    assert found["method"]["max_step_ratio"] == math.inf


@pytest.mark.parametrize("method", ["cicf", "erm", "maml"])
def test_recommended_weight_decay_is_that_which_source_validation_chose(method: str) -> None:
    assert preset("recommended", "digits-dg", method)["optim"]["weight_decay"] == 2e-3


def test_recommended_virtual_step_of_maml_is_that_of_its_own_search() -> None:
    found = preset("recommended", "digits-dg", "maml")["method"]
    assert (found["alpha"], found["deploy"]) == (0.2, "theta_dagger")
    assert preset("recommended", "digits-dg", "cicf")["method"]["alpha"] == 0.5
