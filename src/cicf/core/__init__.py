"""Values, random streams, errors: what every other layer may use. Its errors load no torch."""

from cicf.core.errors import (
    CicfError,
    ConfigError,
    DataError,
    ResultError,
    TrainingError,
    did_you_mean,
)

__all__ = [
    "CicfError",
    "ConfigError",
    "DataError",
    "ResultError",
    "TrainingError",
    "did_you_mean",
]
