"""Who takes part: the options of our own contestants, and the names of all."""

from collections.abc import Sequence
from typing import Literal, TypedDict

import torch.nn.functional as F
from networks import SETTINGS, Batch
from peers import PEERS, Step, erm
from torch import nn


class Options(TypedDict, total=False):
    """Are options of `cicf.Intervention`; what is left out is as a user gets it."""

    order: Literal[1, 2]
    chunk: int | None
    keeps_graphs: bool


CONSTANT = "constant memory"
OURS: dict[str, Options] = {
    "default": {},
    CONSTANT: {"keeps_graphs": False},
    "order 1": {"order": 1},
}
"""Options by name; the one in constant memory gets the chunk of its setting."""
PLAIN = ("erm", "erm, lean")
"""Plain training by torch's operators, as `cicf train --method erm` does it, and by the step's."""
NAMES = (*PEERS, *OURS, *PLAIN)


def options_of(name: str, setting: str) -> Options:
    """Return the options of one of our contestants in a setting."""
    if name == CONSTANT:
        return {**OURS[name], "chunk": SETTINGS[setting].chunk}
    return OURS[name]


def step_of(name: str, setting: str) -> Step:
    """Return what a contestant does in a step; cicf is imported for our own ones only."""
    if name in OURS:
        return _ours(options_of(name, setting))
    if name in PLAIN:
        return erm if name == "erm" else _lean_erm
    return PEERS[name]


def _ours(options: Options) -> Step:
    """Return the step of this project, built once for a model as in a loop."""
    import cicf

    steps: dict[nn.Module, cicf.Intervention] = {}

    def step(model: nn.Module, h: Sequence[str], alpha: float, inner: Batch, outer: Batch) -> None:
        if model not in steps:
            steps.clear()
            steps[model] = cicf.Intervention(
                model, h=h, alpha=alpha, batch_norm="frozen", measures_before=False, **options
            )
        steps[model].backward(inner, outer)

    return step


def _lean_erm(model: nn.Module, h: Sequence[str], alpha: float, inner: Batch, outer: Batch) -> None:
    """Take the gradient of the outer batch alone, by the operators that the step takes its by."""
    from cicf.core.memory import keep_memory
    from cicf.maths.substitution import LeanOperators

    del h, alpha, inner
    keep_memory()
    with LeanOperators():
        loss = F.cross_entropy(model(outer[0]), outer[1])
    loss.backward()
