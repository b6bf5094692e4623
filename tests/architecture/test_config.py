"""Every option has a meaning, and something reads it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cicf.config import RunConfig
from cicf.core.frozen import Frozen
from cicf.method import MethodConfig
from cicf.methods import METHODS

SOURCES = {path: path.read_text() for path in (Path(__file__).parents[2] / "src").rglob("*.py")}


def kinds(kind: type[Frozen]) -> Iterator[type[Frozen]]:
    yield kind
    for field in kind.model_fields.values():
        nested = field.annotation
        if isinstance(nested, type) and issubclass(nested, Frozen):
            yield from (METHODS.values() if issubclass(nested, MethodConfig) else kinds(nested))


FIELDS = [(kind, name) for kind in kinds(RunConfig) for name in kind.model_fields]


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda each: getattr(each, "__name__", each))
def test_every_option_is_read(kind: type[Frozen], name: str) -> None:
    readers = [text for text in SOURCES.values() if re.search(rf"\.{name}\b", text)]
    assert readers, f"{kind.__name__}.{name} is read nowhere"


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda each: getattr(each, "__name__", each))
def test_every_option_has_a_meaning(kind: type[Frozen], name: str) -> None:
    field = kind.model_fields[name]
    is_section = isinstance(field.annotation, type) and issubclass(field.annotation, Frozen)
    assert field.description or is_section or name == "name"


@pytest.mark.parametrize("kind", list(METHODS.values()))
def test_every_method_says_what_it_does(kind: type[MethodConfig]) -> None:
    assert kind.__doc__
    assert kind.__doc__.splitlines()[0].endswith(".")
