"""What flows between the layers of a network: read, or changed, for one forward."""

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from cicf.core import ConfigError, did_you_mean
from cicf.models.split import SplitModel

Change = Callable[[Tensor], Tensor]


class Seen(NamedTuple):
    """Holds what a forward came to, and what its last linear layer was given."""

    features: Float[Tensor, "n d"]
    logits: Float[Tensor, "n classes"]


def head_of(model: SplitModel) -> nn.Linear:
    """Return the last linear layer, which puts out the logits."""
    linear = [part for part in model.network.modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise ConfigError(
            "this method reads what enters the last linear layer, but the network has none; "
            "choose another network or another method"
        )
    return linear[-1]


def copied_with_head(model: SplitModel, num_outputs: int) -> SplitModel:
    """Return a network with the same weights but for the last linear layer, which is new."""
    copied = copy.deepcopy(model)
    head = head_of(copied)
    new = nn.Linear(head.in_features, num_outputs, bias=head.bias is not None).to(head.weight)
    # Its parameters, not the layer: that may have several names.
    head.out_features, head.weight, head.bias = num_outputs, new.weight, new.bias
    return copied


def features_and_logits(model: SplitModel, x: Float[Tensor, "n c h w"]) -> Seen:
    """Return what enters the last linear layer, and the logits, of one forward."""
    seen: list[Tensor] = []
    handle = head_of(model).register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    try:
        logits = model(x)
    finally:
        handle.remove()
    if not seen:
        head = head_of(model)
        name = next(name for name, part in model.network.named_modules() if part is head)
        raise ConfigError(
            f"this method reads what enters the last linear layer, but {name!r} takes no part in "
            "the forward; choose another network or another method"
        )
    return Seen(seen[-1].flatten(1), logits)


@contextmanager
def changed(model: SplitModel, changes: Mapping[str, Change]) -> Iterator[None]:
    """Let what the named modules of the network put out pass through functions for a while.

    A function that returns what it was given only reads it.
    """
    modules = dict(model.network.named_modules())
    handles = []
    try:
        for name, change in changes.items():
            hook = lambda _, __, output, change=change: change(output)  # noqa: E731
            handles.append(modules[name].register_forward_hook(hook))
        yield
    finally:
        for handle in handles:
            handle.remove()


def maps_of(
    model: SplitModel, x: Float[Tensor, "n c h w"], names: Sequence[str]
) -> tuple[dict[str, Tensor], Float[Tensor, "n classes"]]:
    """Return what the named modules put out, and the logits, of one forward."""
    found: dict[str, Tensor] = {}

    def reading(name: str) -> Change:
        def read(output: Tensor) -> Tensor:
            found[name] = output
            return output

        return read

    with changed(model, {name: reading(name) for name in names}):
        logits = model(x)
    return found, logits


def chosen_layers(
    model: SplitModel, given: Sequence[str], *, option: str, stages: Sequence[int]
) -> tuple[str, ...]:
    """Return the layers that a method works on: those given by name, or some of the stages.

    A stage that the network has not is left out; a network without known stages needs names.
    """
    modules = dict(model.network.named_modules())
    for name in given:
        if name not in modules or not name:
            hint = did_you_mean(name, list(modules)[1:])
            raise ConfigError(f"{option}={name!r} is no module of the network; {hint}")
    if given:
        return tuple(given)
    if not model.stages:
        raise ConfigError(
            f"the stages of this network are not known, so name the modules to work on: "
            f"{option}='[\"...\"]' with some of {', '.join(list(modules)[1:9])}"
        )
    count = len(model.stages)
    found = tuple(model.stages[i] for i in stages if -count <= i < count)
    if not found:
        raise ConfigError(
            f"the network has no stage among {', '.join(map(str, stages))}; name the modules to "
            f"work on: {option}='[\"...\"]' with some of {', '.join(model.stages)}"
        )
    return found
