"""The runs that a table is made of."""

import math
from pathlib import Path

import pytest

from cicf.bench import Grid, Job, Variant, make_jobs
from cicf.bench.variants import axis_values, make_variants
from cicf.core import ConfigError
from cicf.experiment import recipe
from cicf.experiment.presets import Values
from cicf.results.axes import AXES, Over, Value

DOMAINS = ("art_painting", "cartoon", "photo", "sketch")


def jobs(
    *,
    over: Values | None = None,
    data: str = "pacs",
    fingerprint: str = "x",
    known: tuple[str, ...] = DOMAINS,
    **values: object,
) -> list[Job]:
    chosen = {
        "data": data,
        "methods": ("erm", "maml", "cicf"),
        "augments": ("basic", "autoaugment"),
        "domains": (),
        "seeds": 2,
        "preset": "paper",
    }
    grid = Grid(**{**chosen, **values})
    return make_jobs(grid, over or {}, known=known, fingerprint=fingerprint, out=Path("out"))


def test_every_method_meets_every_augmentation_domain_and_seed_once() -> None:
    found = {
        (c.method.name, c.data.augment, c.data.target, c.seed) for c in (j.config for j in jobs())
    }
    assert len(jobs()) == len(found) == 3 * 2 * 4 * 2


def test_first_seed_comes_first_so_that_a_table_is_there_early() -> None:
    seeds = [job.config.seed for job in jobs()]
    assert seeds == sorted(seeds)


def test_runs_have_the_values_of_the_preset_and_those_of_the_user() -> None:
    found = jobs(over={"optim": {"lr": 0.3}})[0].config
    assert (found.optim.lr, found.outer.size, found.epochs) == (0.3, 84, 60)


def test_folder_of_a_run_is_named_by_config_and_data() -> None:
    first, again, other = jobs(), jobs(), jobs(fingerprint="y")
    assert [job.folder for job in first] == [job.folder for job in again]
    assert {job.folder.path for job in first}.isdisjoint(job.folder.path for job in other)
    assert len({job.folder.path for job in first}) == len(first)


def test_single_source_trains_on_each_domain_in_turn() -> None:
    found = jobs(protocol="single-source", methods=("erm",), augments=("basic",), seeds=1)
    assert [(j.config.data.source, j.config.data.target) for j in found] == [
        (name, None) for name in DOMAINS
    ]


def test_domains_may_be_named_as_people_name_them() -> None:
    found = jobs(domains=("A", "Photo"), methods=("erm",), augments=("basic",), seeds=1)
    assert [job.config.data.target for job in found] == ["art_painting", "photo"]


def test_domain_that_the_data_do_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="--targets 'skech' is no domain of pacs; did you mean"):
        jobs(domains=("skech",))


def test_data_of_one_domain_make_no_grid() -> None:
    with pytest.raises(ConfigError, match="one domain only, 'all'"):
        jobs(data="photos", known=("all",), preset="cpu")


@pytest.mark.parametrize(
    ("over", "option"),
    [
        ({"seed": 3}, "--seeds"),
        ({"data": {"target": "photo"}}, "--targets"),
        ({"data": {"source": "photo"}}, "--protocol single-source"),
    ],
)
def test_what_a_grid_goes_through_cannot_be_set(over: Values, option: str) -> None:
    with pytest.raises(ConfigError, match=f"cannot be set for a whole table; use {option}"):
        jobs(over=over)


def test_options_of_a_method_go_to_those_that_have_them() -> None:
    over = {"method": {"alpha": 0.3, "scheme": "balanced", "deploy": "theta"}}
    found = {job.config.method.name: job.config.method.model_dump() for job in jobs(over=over)}
    assert "alpha" not in found["erm"]
    assert (found["maml"]["alpha"], found["cicf"]["alpha"]) == (0.3, 0.3)
    assert "scheme" not in found["maml"]
    assert (found["cicf"]["scheme"], found["cicf"]["deploy"]) == ("balanced", "theta")


def test_what_is_stored_is_said_for_the_method_that_is_named_with_it() -> None:
    over = {"method": {"name": "cicf", "deploy": "theta_dagger"}}
    found = {job.config.method.name: job.config.method.deploy for job in jobs(over=over)}
    assert found == {"erm": "theta", "maml": "theta", "cicf": "theta_dagger"}


def test_option_that_no_method_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"method\.alfa is no option of erm, maml, cicf; did you"):
        jobs(over={"method": {"alfa": 0.3}})


def test_a_method_is_run_in_all_its_variants_and_others_once() -> None:
    variants = (Variant("M=8", {"inner": {"size": 8}}), Variant("as it is", {}))
    found = jobs(variants={"cicf": variants}, methods=("cicf", "erm"), augments=("basic",), seeds=1)
    assert len(found) == 4 * 3
    assert [job.kind for job in found[:3]] == [
        "cicf, basic, M=8",
        "cicf, basic, as it is",
        "erm, basic",
    ]
    assert [job.config.inner.size for job in found[:3]] == [8, 256, 256]
    assert found[0].label == "cicf, basic, M=8, target art_painting, seed 0"


def test_a_variant_with_the_options_of_a_table_is_a_run_of_the_table() -> None:
    variants = (Variant("K=3", {"clusters": {"per_class": 3}}),)
    plain, varied = (
        {job.folder.path for job in jobs(methods=("cicf",), augments=("basic",), variants=each)}
        for each in ({}, {"cicf": variants})
    )
    assert plain == varied


@pytest.mark.parametrize(
    ("over", "value", "values"),
    [
        ("cut", "Z_0", {}),
        ("cut", "input", {"model": {"cut": "input"}}),
        ("batch-size", 96, {}),
        ("batch-size", 64, {"inner": {"size": 64}}),
        ("order", 1, {"method": {"order": 1}}),
    ],
)
def test_what_is_so_anyway_is_not_said_again(over: Over, value: Value, values: Values) -> None:
    (variant,) = make_variants(AXES[over], [value], config=recipe("demo"), num_classes=10)
    assert variant.values == values


def test_default_cuts_are_those_of_the_network() -> None:
    cuts = ("input", "Z_0", "Z_1", "Z_2", "Z_3")
    assert axis_values(AXES["cut"], None, "digits_cnn") == cuts
    assert axis_values(AXES["cut"], None, "resnet18") == (*cuts, "Z_4", "Z_5")


def test_values_of_a_number_may_have_a_fraction_or_no_end() -> None:
    assert axis_values(AXES["bound"], ["0.02", "inf"], "digits_cnn") == (0.02, math.inf)
    variants = make_variants(AXES["alpha"], (0.2,), config=recipe("demo"), num_classes=10)
    assert [each.values for each in variants] == [{"method": {"alpha": 0.2}}]
    with pytest.raises(ConfigError, match=r"--values 'large' is no number, but method\.alpha is"):
        axis_values(AXES["alpha"], ["0.1", "large"], "digits_cnn")
