"""Complete configs to start from, so that one word is enough."""

from collections.abc import Mapping
from typing import Any

from cicf.config import RunConfig, make_config
from cicf.core import ConfigError
from cicf.data.benchmarks import benchmark, is_benchmark
from cicf.experiment.presets import EMBEDDED, Values, merged, preset_values


def recipe(
    data: str, over: Mapping[str, Any] | None = None, *, preset: str = "recommended"
) -> RunConfig:
    """Return the config for some data, with values of the user's own laid over a preset.

    For the embedded digits it is the network of Digits-DG from scratch; for a folder of images a
    ResNet-18 with ImageNet weights and the paper's α and β for PACS, with a smaller M that fits in
    the memory of most machines. `over` is nested as the config is: {"method": {"name": "erm"}}.
    """
    # As tab completion leaves it; the same folder is the same run.
    data = data.rstrip("/") or data
    values = merged({"data": {"name": data}}, over or {})
    named = values["data"]["name"] if isinstance(values["data"], Mapping) else data
    if named != data:
        raise ConfigError(
            f"data.name={named!r} differs from the data that were named, {data!r}; leave it out"
        )
    if is_benchmark(data):
        values = _by_our_names(values)
    # With a root, `demo` is a folder of that name.
    kind = "folder" if data in EMBEDDED and _data(values).get("root") is not None else data
    return make_config(merged(preset_values(preset, kind, values), values))


def _by_our_names(values: Values) -> Values:
    """Return the values with the benchmark and its domains as we call them."""
    known, data = benchmark(values["data"]["name"]), dict(_data(values))
    data["name"] = known.name
    for option in ("target", "source"):
        name = data.get(option)
        if isinstance(name, str):
            data[option] = known.domain(name) or name
    return {**values, "data": data}


def _data(values: Values) -> Mapping[str, Any]:
    found = values["data"]
    return found if isinstance(found, Mapping) else {}
