"""Provenance: the command that makes a run again, and the options in which rows differ."""

import shlex
from typing import Any

import pytest
from tests.support.records import run

from cicf.cli.options import overrides
from cicf.experiment import recipe
from cicf.report.page_runs import command_of, differing, row_options, run_facts, run_grid
from cicf.results.record import Record


def made(**over: Any) -> Record:
    """Return the record of a run on the demo with these values laid over the recipe's."""
    return run(70.0).record.model_copy(update={"config": recipe("demo", over).identity()})


def understood(command: str) -> dict[str, Any]:
    """Return the config that the words of a command stand for."""
    first, verb, data, *words = shlex.split(command)
    assert (first, verb) == ("cicf", "train")
    names = {
        "--target": "data.target",
        "--method": "method.name",
        "--base": "method.base.name",
        "--average": "average.name",
        "--model": "model.name",
        "--epochs": "epochs",
        "--seed": "seed",
    }
    pairs = list(zip(words[::2], words[1::2], strict=True))
    settings = [value for word, value in pairs if word == "--set"]
    settings += [f"{names[word]}={value}" for word, value in pairs if word != "--set"]
    return recipe(data, overrides(named={}, settings=settings, file=None)).identity()


@pytest.mark.parametrize(
    "over",
    [
        {},
        {"data": {"target": "blended"}, "seed": 3, "epochs": 2},
        {"method": {"name": "cicf", "alpha": 0.03, "order": 1, "max_step_ratio": float("inf")}},
        {"method": {"name": "erm"}, "optim": {"clip": 1.0, "lr": 0.01}},
        {"method": {"name": "maml"}, "inner": {"size": 64}, "clusters": {"per_class": "auto"}},
        {"data": {"target": "a 'b'"}, "model": {"weights": "true"}},
        {"method": {"name": "cicf", "base": "maml"}, "average": {"name": "swad", "every": 7}},
        {"method": {"name": "cicf", "base": {"name": "maml", "tasks": "cross"}}},
    ],
)
def test_the_command_of_a_run_has_its_very_options(over: dict[str, Any]) -> None:
    record = made(**over)
    assert understood(command_of(record)) == record.config


def test_the_command_has_no_more_options_than_it_takes() -> None:
    record = made(data={"target": "blended"}, method={"name": "erm"}, epochs=2)
    command = command_of(record)
    assert command.startswith("cicf train demo --target blended --method erm")
    assert "--set" not in command


def test_a_base_and_an_average_are_words_of_the_command() -> None:
    command = command_of(made(method={"base": "erm"}, average={"name": "swad"}))
    assert "--method cicf --base erm --average swad" in command
    assert "--set" not in command


def test_the_place_of_a_benchmark_is_left_to_the_reader() -> None:
    assert "--root DIR" in command_of(run(70.0).record)


def test_options_of_a_method_that_is_gone_are_all_written_out() -> None:
    record = run(70.0, method="gone.package:Config", options={"method.alpha": 0.5}).record
    assert "--set method.alpha=0.5" in command_of(record)


def test_rows_differ_in_options_but_never_by_domain_or_seed() -> None:
    rows = {
        "a": [run(70.0, seed=0, options={"method.alpha": 0.1})],
        "b": [run(70.0, seed=1, target="photo", options={"method.alpha": 0.2})],
    }
    grid = differing(row_options(rows))
    assert grid is not None
    assert [line.label for line in grid.lines] == ["method.alpha"]
    assert [item.text for item in grid.lines[0].items] == ["0.1", "0.2"]
    assert differing(row_options({"a": rows["a"]})) is None


def test_facts_name_what_a_number_depends_on() -> None:
    found = run_facts("ERM", run(70.0, seed=4))
    facts = dict(found.facts)
    assert facts["seed"] == "4"
    assert facts["data fingerprint"] == "0123456789abcdef"
    assert "cicf 0.1.0" in facts["versions"]
    assert "leave-one-domain-out" in facts["protocol"]
    assert facts["folder"] == str(found.path)


def test_every_run_is_a_line_with_numbers_to_sort_by() -> None:
    grid = run_grid({"ERM": [run(70.0, seed=0), run(75.0, seed=1)]})
    column = grid.head.index("target %") - 1
    assert [line.items[column].value for line in grid.lines] == pytest.approx([70.0, 75.0])
