"""Complete sets of values to start from, by name: the paper's, ours, and small ones."""

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, get_args

from cicf.core import ConfigError, did_you_mean
from cicf.data.benchmarks import benchmark, is_benchmark
from cicf.data.confounded import CONFOUNDED

Preset = Literal["recommended", "paper", "paper-literal", "cpu"]
PRESETS: tuple[Preset, ...] = get_args(Preset)
DEMO = "demo"
EMBEDDED = (DEMO, CONFOUNDED)
"""Data sets that come with the package."""

Values = dict[str, Any]  # Any: what a user wrote, before it is checked

MEANINGS: dict[Preset, str] = {
    "recommended": "ours: what held up in our measurements, for the memory of most machines",
    "paper": "the paper's values for a benchmark, with a bound on the virtual step and clipping",
    "paper-literal": "the paper's values without bound and clipping; may not start to train",
    "cpu": "small images, batches and few epochs, which end on two cores",
}

SAFEGUARD = {"method": {"max_step_ratio": 0.01}, "optim": {"clip": 2.0}}
"""What `paper` adds to the paper: a bound on ‖α g†‖ / ‖θ‖, and on the norm of the gradient."""
NO_SAFEGUARD = {"method": {"max_step_ratio": float("inf")}, "optim": {"clip": float("inf")}}


class Printed(NamedTuple):
    """Holds what the paper prints for a benchmark."""

    model: str
    alpha: float
    beta: float


PAPER = {
    "pacs": Printed("resnet18", alpha=0.05, beta=0.01),
    "vlcs": Printed("alexnet", alpha=0.005, beta=0.001),
    "office-home": Printed("resnet18", alpha=0.001, beta=0.001),
    "digits-dg": Printed("digits_cnn", alpha=0.5, beta=0.1),
    "digits-dg-rebuilt": Printed("digits_cnn", alpha=0.5, beta=0.1),
}


def preset_values(name: str, data: str, over: Mapping[str, Any]) -> Values:
    """Return the values of a preset for some data; `over` may name a model and a method."""
    if name not in PRESETS:
        raise ConfigError(f"--preset {name!r} is none; {did_you_mean(name, PRESETS)}")
    model, method = _named(over, "model"), _named(over, "method") or "cicf"
    if is_benchmark(data):
        values = _benchmark(name, benchmark(data).name, model, method)
    elif name.startswith("paper"):
        raise ConfigError(
            f"--preset {name!r} has values for {', '.join(PAPER)}, not for {data!r}; "
            "use 'recommended' or 'cpu'"
        )
    else:
        values = _embedded(model) if data in EMBEDDED else _folder(model)
        if name == "cpu":
            values = merged(values, _EMBEDDED_SMALL if data in EMBEDDED else _small(values))
    if method not in ("cicf", "maml"):
        values.pop("method", None)
    return values


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Return nested dictionaries laid over each other."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        result[key] = value
    return result


def _benchmark(name: str, data: str, model: str | None, method: str) -> Values:
    printed = PAPER[data]
    values: Values = {
        "data": {"validation": benchmark(data).validation},
        "model": {"name": model or printed.model},
        "method": {"alpha": printed.alpha},
        "inner": {"size": 256},
        "outer": {"size": 84},
        "clusters": {"per_class": 3},
        # The paper names SGD and β alone; the rest is that of the protocol its tables come from.
        "optim": {"lr": printed.beta, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "cosine"},
        "epochs": 60,
    }
    if printed.model == "digits_cnn":
        values = merged(values, _digits())
        # With momentum, β = 0.1 from a random start kills the network within an epoch.
        values["optim"] |= {"momentum": 0.0, "schedule": "step"}
    if name == "paper-literal":
        return merged(values, NO_SAFEGUARD)
    values = merged(values, SAFEGUARD)
    if name == "paper":
        return values
    values = merged(values, _ours(printed, method))
    return merged(values, _small(values)) if name == "cpu" else values


def _ours(printed: Printed, method: str) -> Values:
    if printed.model == "digits_cnn":
        # What source validation chose (docs/results), with a virtual step that nothing bounds.
        return {
            "method": {
                **(
                    {"alpha": 0.2, "deploy": "theta_dagger"} if method == "maml" else {"alpha": 0.5}
                ),
                "alpha_ramp": 1,
                "max_step_ratio": float("inf"),
            },
            "inner": {"size": None, "most": 256 if method == "cicf" else 64},
            "outer": {"size": None},
            "optim": {"lr": 0.5, "weight_decay": 2e-3, "schedule": "cosine"},
            "epochs": 9,
        }
    # Fewer inner images, because memory grows with M where batch norm uses batch statistics.
    return {"inner": {"size": None, "most": 64}, "outer": {"size": None}, "epochs": 30}


_EMBEDDED_SMALL: Values = {"inner": {"most": 48}, "epochs": 2}
"""So that a table of all methods on all targets ends on two cores while one waits for it."""


def _small(values: Values) -> Values:
    """Return sizes that two cores get through."""
    if values["model"].get("name", "resnet18") == "digits_cnn":
        return {"inner": {"most": 64}, "outer": {"most": 84}, "epochs": 5}
    return {
        "data": {"image_size": 64},
        "inner": {"most": 63},
        "outer": {"most": 42},
        "epochs": 3,
    }


def _embedded(model: str | None) -> Values:
    values = {
        "model": {"name": model or "digits_cnn"},
        "method": {"alpha": 0.1},
        "inner": {"most": 96},
        "optim": {"lr": 0.1, "momentum": 0.0, "clip": 2.0},
        "epochs": 20,
    }
    return merged(values, _digits())


def _folder(model: str | None) -> Values:
    values: Values = {
        "model": {"name": model or "resnet18"},
        "method": {"alpha": 0.05},
        "inner": {"most": 64},
        "optim": {"clip": 2.0},
    }
    if model == "digits_cnn" or ":" in (model or ""):
        return merged(values, {"model": {"weights": "none"}, "data": {"normalise": "half"}})
    return values


def _digits() -> Values:
    """Return what digits want: no mirror images, no weights of photographs."""
    return {
        "data": {"normalise": "half", "flips": False, "policy": "svhn"},
        "model": {"weights": "none"},
    }


def _named(values: Mapping[str, Any], section: str) -> str | None:
    found = values.get(section, {})
    name = found.get("name") if isinstance(found, Mapping) else None
    return None if name is None else str(name)
