"""Models and cuts that the step refuses, each with the sentence that says what to do instead."""

import re
from collections.abc import Sequence

from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from cicf.core import ConfigError, did_you_mean


def check_cut(model: nn.Module, h: Sequence[str]) -> None:
    """Refuse a name in h that is neither a module nor a parameter of the model."""
    if isinstance(h, str):
        raise ConfigError(f"h={h!r} is one string; pass a sequence of names: h=[{h!r}]")
    modules = [name for name, _ in model.named_modules(remove_duplicate=False) if name]
    parameters = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for name in h:
        if name not in modules and name not in parameters:
            raise ConfigError(
                f"h={name!r} is no module and no parameter of the model; "
                f"{did_you_mean(name, modules or parameters)}"
            )


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


def check_second_derivative(error: BaseException) -> None:
    """Say in a sentence what torch's error means when an operation has no second derivative."""
    found = re.search(r"derivative for (\S+) is not implemented", str(error))
    if isinstance(error, RuntimeError) and found:
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
