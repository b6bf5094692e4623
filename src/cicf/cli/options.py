"""From the words of a command line to a config."""

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cicf.core.errors import ConfigError

if TYPE_CHECKING:
    from cicf.config import RunConfig

Base = Annotated[
    str | None,
    typer.Option(
        metavar="METHOD", help="With cicf, the method whose loss its virtual step is taken of."
    ),
]
Average = Annotated[
    str | None,
    typer.Option(
        metavar="KIND", help="Weights that are stored: of the last step (none), or averaged (swad)."
    ),
]

Values = dict[str, Any]  # Any: what a user wrote, before it is checked


def config_of(
    data: str,
    *,
    named: Mapping[str, Any],
    settings: Sequence[str],
    file: Path | None,
    preset: str = "recommended",
) -> "RunConfig":
    """Return the config: a preset for the data, then the file, then options, then settings.

    `named` are options by the dotted name of their field; those that are None were not given.
    """
    from cicf.experiment import recipe

    return recipe(data, overrides(named=named, settings=settings, file=file), preset=preset)


def overrides(*, named: Mapping[str, Any], settings: Sequence[str], file: Path | None) -> Values:
    """Return what a user wrote, nested as the config is: the file, then options, then settings."""
    from cicf.experiment import merged

    over: Values = {} if file is None else _read(file)
    for name, value in named.items():
        if value is not None:
            over = merged(over, _nested(name, value))
    for setting in settings:
        over = merged(over, _parsed(setting))
    return over


def words(text: str, option: str) -> tuple[str, ...]:
    """Return the words of a list by commas, each once."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise ConfigError(f"{option} {text!r} names nothing; separate names by commas")
    return found


def _parsed(setting: str) -> Values:
    name, equals, text = setting.partition("=")
    if not equals or not name:
        raise ConfigError(f"--set {setting!r} must be name=value, such as method.alpha=0.1")
    return _nested(name.strip(), _value(text.strip()))


def _value(text: str) -> object:
    """Return None, or what the text is in TOML: a number, a truth value; else the text itself."""
    if text in ("None", "null"):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _nested(name: str, value: object) -> Values:
    found = value
    for part in reversed(name.split(".")):
        found = {part: found}
    assert isinstance(found, dict)
    return found


def _read(file: Path) -> Values:
    if not file.is_file():
        raise ConfigError(f"--config {str(file)!r} is no file; name a TOML file")
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"--config {str(file)!r} is no TOML ({error}); repair it") from error
