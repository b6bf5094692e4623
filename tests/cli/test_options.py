"""From the words of a command line to a config."""

from pathlib import Path

import pytest

from cicf import ConfigError, RunConfig
from cicf.cli.options import config_of


def config(*settings: str, file: Path | None = None, **named: object) -> RunConfig:
    """Return the config for a folder; named options have `__` for the dot."""
    dotted = {name.replace("__", "."): value for name, value in named.items()}
    return config_of("photos", named=dotted, settings=settings, file=file)


def toml(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_one_word_is_enough() -> None:
    found = config()
    assert (found.data.name, found.method.name, found.model.name) == ("photos", "cicf", "resnet18")


def test_options_that_were_not_given_leave_the_recipe_alone() -> None:
    assert config(epochs=None, method__name=None, data__target=None) == config()


def test_each_source_is_laid_over_the_one_before(tmp_path: Path) -> None:
    file = toml(tmp_path / "a.toml", "epochs = 3\nseed = 3\nlog_every = 3\n")
    found = config("epochs=5", file=file, epochs=4, seed=4)
    assert (found.epochs, found.seed, found.log_every) == (5, 4, 3)


def test_later_setting_wins() -> None:
    assert config("epochs=5", "seed=1", "epochs=6").epochs == 6


def test_settings_of_one_table_are_kept_beside_each_other(tmp_path: Path) -> None:
    file = toml(tmp_path / "a.toml", "[optim]\nlr = 0.5\nmomentum = 0.5\n")
    found = config("optim.clip=2", file=file)
    assert (found.optim.lr, found.optim.momentum, found.optim.clip) == (0.5, 0.5, 2.0)


def test_method_of_the_file_has_options_of_its_own_kind(tmp_path: Path) -> None:
    file = toml(tmp_path / "a.toml", "[method]\nname = 'maml'\ntasks = 'cross'\n")
    assert config(file=file).method.model_dump()["tasks"] == "cross"
    with pytest.raises(ConfigError, match=r"method\.tasks is no option"):
        config(file=file, method__name="erm")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("optim.lr=1e-3", 0.001),
        ("optim.lr = 2", 2.0),
        ("data.source=null", None),
        ("data.flips=false", False),
        ("data.target=Real World", "Real World"),
        ('data.target="2020"', "2020"),
        ("data.target=a=b", "a=b"),
        ("data.root=/data", Path("/data")),
        ("clusters.per_class=auto", "auto"),
        ("method.max_step_ratio=inf", float("inf")),
    ],
)
def test_value_is_read_as_toml_or_as_text(setting: str, value: object) -> None:
    section, _, field = setting.partition("=")[0].strip().partition(".")
    assert getattr(getattr(config(setting), section), field) == value


@pytest.mark.parametrize("setting", ["", "epochs", "=3", "method.alpha"])
def test_setting_without_name_or_value_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"must be name=value, such as method\.alpha=0\.1"):
        config(setting)


def test_data_are_what_the_first_word_says(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.name='others' differs from .* 'photos'"):
        config("data.name=others")
    file = toml(tmp_path / "a.toml", "[data]\nname = 'photos'\ntarget = 'art'\n")
    assert config(file=file).data.target == "art"


def test_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"a\.toml' is no TOML"):
        config(file=tmp_path / "a.toml")


def test_a_base_may_have_options_of_its_own() -> None:
    found = config("method.base.tasks=cross", method__base__name="maml").method.model_dump()
    assert (found["name"], found["base"]["name"]) == ("cicf", "maml")
    assert found["base"]["tasks"] == "cross"
    assert config("method.base=maml").method.model_dump()["base"]["tasks"] == "within"
    with pytest.raises(ConfigError, match=r"method\.base\.task is no option"):
        config("method.base.task=cross", method__base__name="maml")
