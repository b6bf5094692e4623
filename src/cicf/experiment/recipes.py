"""Complete configs to start from, so that one word is enough."""

from collections.abc import Mapping
from typing import Any

from cicf.config import RunConfig, make_config
from cicf.core import ConfigError

Values = dict[str, Any]  # Any: what a user wrote, before it is checked

DEMO = "demo"


def recipe(data: str, over: Mapping[str, Any] | None = None) -> RunConfig:
    """Return the config for some data, with values of the user's own laid over it.

    For the embedded digits it is the network of Digits-DG from scratch; for a folder of images a
    ResNet-18 with ImageNet weights and the paper's α and β for PACS, with a smaller M that fits in
    the memory of most machines. `over` is nested as the config is: {"method": {"name": "erm"}}.
    """
    # As tab completion leaves it; the same folder is the same run.
    data = data.rstrip("/") or data
    values = merged({"data": {"name": data}}, over or {})
    is_demo = data == DEMO and not _has_root(values)
    start = (
        _demo(_name(values, "model", "digits_cnn"))
        if is_demo
        else _folder(_name(values, "model", "resnet18"))
    )
    if _name(values, "method", "cicf") not in ("cicf", "maml"):
        start.pop("method")
    config = make_config(merged(start, values))
    if config.data.name != data:
        raise ConfigError(
            f"data.name={config.data.name!r} differs from the data that were named, {data!r}; "
            "leave it out"
        )
    return config


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """Return nested dictionaries laid over each other."""
    result = dict(base)
    for key, value in over.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            value = merged(old, value)
        result[key] = value
    return result


def _demo(model: str) -> Values:
    # Without batch norm the step goes through its batch in pieces, which is faster.
    pieces = {"chunk": 32, "keeps_graphs": True} if model == "digits_cnn" else {}
    return {
        "data": {"normalise": "half", "flips": False},
        "model": {"name": "digits_cnn", "weights": "none"},
        "method": {"alpha": 0.1, **pieces},
        "inner": {"most": 96},
        "optim": {"lr": 0.1, "momentum": 0.0, "clip": 2.0},
        "epochs": 20,
    }


def _folder(model: str) -> Values:
    start: Values = {"method": {"alpha": 0.05}, "inner": {"most": 64}, "optim": {"clip": 2.0}}
    if model == "digits_cnn" or ":" in model:
        start |= {"model": {"weights": "none"}, "data": {"normalise": "half"}}
    return start


def _has_root(values: Mapping[str, Any]) -> bool:
    data = values.get("data")
    return isinstance(data, Mapping) and data.get("root") is not None


def _name(values: Mapping[str, Any], section: str, default: str) -> str:
    found = values.get(section, {})
    return str(found.get("name", default)) if isinstance(found, Mapping) else default
