"""Models and cuts that the step refuses, each with the sentence that says what to do instead."""

import re
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from cicf.core import ConfigError, DataError, did_you_mean
from cicf.maths.shares import Gradients

_WRONG_NODES = {
    "torch::autograd::Error": "a function marked @once_differentiable",
    "WeightNormInterfaceBackward0": "weight_norm",
}


def check_options(
    *,
    model: nn.Module,
    loss: object,
    order: int,
    chunk: int | str | None,
    batch_norm: str,
    curvature: float,
    max_step_ratio: float,
) -> None:
    """Refuse values that an option of the step cannot have."""
    if not isinstance(model, nn.Module):
        raise ConfigError(f"model is a {type(model).__name__}; pass a torch.nn.Module")
    if not callable(loss):
        raise ConfigError(f"loss={loss!r} must be a function (model, batch) → values of the loss")
    if order not in (1, 2):
        raise ConfigError(f"order={order!r} must be 1 (no curvature) or 2 (exact)")
    if chunk not in (None, "auto") and not (isinstance(chunk, int) and chunk >= 1):
        raise ConfigError(
            f"chunk={chunk!r} must be at least 1 sample, None for the whole batch, or 'auto'"
        )
    if batch_norm not in ("batch", "running", "frozen"):
        raise ConfigError(f"batch_norm={batch_norm!r} must be 'batch', 'running' or 'frozen'")
    if not isinstance(curvature, int | float) or not 0 < curvature <= 1:
        raise ConfigError(f"curvature={curvature!r} must be a part of the batch, above 0, up to 1")
    if not isinstance(max_step_ratio, int | float) or not max_step_ratio > 0:
        raise ConfigError(
            f"max_step_ratio={max_step_ratio!r} must be above 0, or infinite for no bound"
        )


def check_cut(model: nn.Module, h: Iterable[str]) -> tuple[str, ...]:
    """Return the names in h, each of which must be a module or a parameter of the model."""
    if isinstance(h, str) or not isinstance(h, Iterable):
        raise ConfigError(f"h={h!r} is not a sequence of names; pass one, such as h=['stem']")
    h = tuple(h)
    modules = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    parameters = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for name in h:
        if not isinstance(name, str) or (name not in modules and name not in parameters):
            raise ConfigError(
                f"h={name!r} is no module and no parameter of the model; "
                f"{did_you_mean(str(name), modules or parameters)}"
            )
    return h


def check_wrappers(model: nn.Module, order: int) -> None:
    """Refuse wrappers that would silently change the step."""
    for module in model.modules():
        if isinstance(module, DataParallel | DistributedDataParallel) or _is_sharded(module):
            raise ConfigError(
                f"the model is wrapped in {type(module).__name__}, which averages the outer "
                "gradient alone and so changes the step; pass the module inside it: Intervention "
                "averages all three passes over the ranks by itself"
            )
        if order == 2 and _is_compiled(module):
            raise ConfigError(
                "the model is compiled, and compiled code has no second derivative; pass the "
                "module as it was before torch.compile, or use order=1"
            )


def check_mode() -> None:
    """Refuse inference mode, in which nothing has a gradient."""
    if torch.is_inference_mode_enabled():
        raise ConfigError(
            "the step is called inside torch.inference_mode, where nothing has a gradient; "
            "leave it, torch.no_grad is fine"
        )


def check_reached(is_reached: bool, which: str) -> None:
    """Refuse a loss that no trainable parameter enters."""
    if not is_reached:
        raise DataError(
            f"the {which} loss depends on no trainable parameter; check that the loss is not "
            "detached, nor made of whole numbers such as an argmax"
        )


def check_graph(g: Gradients) -> None:
    """Refuse operations whose second derivative torch leaves out or gets wrong without a word."""
    nodes = [slope.grad_fn for slope in g if slope is not None and slope.grad_fn is not None]
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if node.name() in _WRONG_NODES:
            raise ConfigError(
                f"the model uses {_WRONG_NODES[node.name()]}, whose second derivative torch does "
                "not have; use order=1, or write the operation in others"
            )
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)


def check_second_derivative(error: BaseException) -> None:
    """Say in a sentence what torch's error means when an operation has no second derivative."""
    if not isinstance(error, RuntimeError):
        return
    if "does not currently support double backward" in str(error):
        raise ConfigError(
            "a function in the model or the loss is compiled, and compiled code has no second "
            "derivative; use it uncompiled, or order=1"
        ) from error
    if "use_reentrant" in str(error):
        raise ConfigError(
            "the model has a reentrant checkpoint, which torch.autograd.grad cannot pass; call "
            "torch.utils.checkpoint with use_reentrant=False"
        ) from error
    found = re.search(r"derivative for (\S+) is not implemented", str(error))
    if found:
        raise ConfigError(
            f"torch has no second derivative of an operation in the model ({found[1]}); use "
            "order=1, or put another in its place (for nn.Hardsigmoid: F.relu6(x + 3) / 6)"
        ) from error


def _is_sharded(module: nn.Module) -> bool:
    return any(
        base.__name__ in ("FSDPModule", "FullyShardedDataParallel") for base in type(module).__mro__
    )


def _is_compiled(module: nn.Module) -> bool:
    # By attribute: the class lives in torch._dynamo, whose import takes seconds.
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None
