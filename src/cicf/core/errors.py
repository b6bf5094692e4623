"""The errors a user can meet; each message names the value, the rule and the repair."""

import difflib
from collections.abc import Iterable


class CicfError(Exception):
    """Is the parent of every error that is the user's to repair."""


class ConfigError(CicfError):
    """Says that an option has a value it cannot have."""


class BusyError(ConfigError):
    """Says that another process works in a folder."""


class DataError(CicfError):
    """Says that data, a batch or a table is not what it has to be."""


class ResultError(CicfError):
    """Says that results of runs cannot be read, or do not go together."""


class TrainingError(CicfError):
    """Says that a training cannot go on."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the end of a sentence: the nearest known names, or all of them if none is near."""
    known = list(dict.fromkeys(known))
    near = difflib.get_close_matches(name, known, n=3)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return f"choose one of {', '.join(map(repr, known))}"
