"""Complete configs to start from, so that one word is enough."""

from collections.abc import Mapping
from typing import Any

Values = dict[str, Any]

DEMO = "demo"


def recipe(data: str, method: str) -> Values:
    """Return the values that a run starts from, as nested dictionaries.

    Of the embedded digits: the network of Digits-DG from scratch. Of a user's images: a ResNet-18
    with ImageNet weights and the paper's α and β for PACS.
    """
    is_demo = data == DEMO
    values: Values = {"data": {"name": data}, "method": {"name": method}}
    if is_demo:
        values["data"] |= {"normalise": "half", "flips": False}
        values["model"] = {"name": "digits_cnn", "weights": "none"}
        values["optim"] = {"lr": 0.1, "momentum": 0.0, "clip": 2.0}
        values["epochs"] = 20
        if method in ("cicf", "maml"):
            values["method"] |= {"alpha": 0.1, "chunk": 32, "keeps_graphs": True}
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
