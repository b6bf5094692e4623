"""Train vision models that learn causes instead of confounders, without naming the confounders.

The names below are imported when they are first used: `import cicf` itself loads nothing heavy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cicf.config import RunConfig
    from cicf.core import CicfError, ConfigError, DataError
    from cicf.data import (
        ClassWeightedSampler,
        Clustering,
        RandomSampler,
        Strata,
        StratifiedSampler,
        cluster_by_class,
        cluster_dataset,
    )
    from cicf.experiment import LoadedRun, open_run, recipe, train
    from cicf.intervention import (
        AlphaCurve,
        Intervention,
        Terms,
        cross_entropy_per_sample,
        suggest_alpha,
    )
    from cicf.results import Record

__version__ = "0.1.0"

_HOMES = {
    "AlphaCurve": "cicf.intervention",
    "CicfError": "cicf.core.errors",
    "ClassWeightedSampler": "cicf.data",
    "Clustering": "cicf.data",
    "ConfigError": "cicf.core.errors",
    "DataError": "cicf.core.errors",
    "Intervention": "cicf.intervention",
    "LoadedRun": "cicf.experiment",
    "RandomSampler": "cicf.data",
    "Record": "cicf.results",
    "RunConfig": "cicf.config",
    "Strata": "cicf.data",
    "StratifiedSampler": "cicf.data",
    "Terms": "cicf.intervention",
    "cluster_by_class": "cicf.data",
    "cluster_dataset": "cicf.data",
    "cross_entropy_per_sample": "cicf.intervention",
    "open_run": "cicf.experiment",
    "recipe": "cicf.experiment",
    "suggest_alpha": "cicf.intervention",
    "train": "cicf.experiment",
}

__all__ = [
    "AlphaCurve",
    "CicfError",
    "ClassWeightedSampler",
    "Clustering",
    "ConfigError",
    "DataError",
    "Intervention",
    "LoadedRun",
    "RandomSampler",
    "Record",
    "RunConfig",
    "Strata",
    "StratifiedSampler",
    "Terms",
    "cluster_by_class",
    "cluster_dataset",
    "cross_entropy_per_sample",
    "open_run",
    "recipe",
    "suggest_alpha",
    "train",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'cicf' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
