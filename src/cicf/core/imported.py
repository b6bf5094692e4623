"""Objects of the user's own, named by where they are."""

import importlib

from cicf.core.errors import ConfigError


def imported(name: str, *, option: str) -> object:
    """Return what `package.module:attribute` names; `option` is how the user came to name it."""
    module, _, attribute = name.partition(":")
    try:
        found: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError, TypeError, SyntaxError) as error:
        raise ConfigError(
            f"{option}={name!r} cannot be imported ({error}); it must be package.module:name, "
            "importable from here"
        ) from error
    return found
