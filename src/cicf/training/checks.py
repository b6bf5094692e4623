"""What stops a training: numbers that are not finite, and memory that is not there."""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cicf.core import TrainingError
from cicf.core.memory import is_out_of_memory
from cicf.training.plan import Plan

_REPAIR = "lower optim.lr or method.alpha, or set optim.clip"


def check_terms(terms: Mapping[str, float], *, step: int, kept: Callable[[], str]) -> None:
    """Refuse to take a step whose loss or gradient, of any turn, is not finite."""
    norms = [name for name in terms if name.startswith("gradient_norm")]
    for name in ("loss", *norms):
        if not math.isfinite(terms.get(name, 0.0)):
            raise TrainingError(
                f"the {name.replace('_', ' ')} is {terms[name]} in step {step}, so "
                f"training stopped before it ({kept()}); {_REPAIR}"
            )


def check_weights(module: nn.Module, *, step: int, folder: object) -> None:
    """Refuse to keep weights that are not finite."""
    for name, value in module.state_dict().items():
        if isinstance(value, Tensor) and not value.isfinite().all():
            raise TrainingError(
                f"{name} is not finite after step {step}, so training stopped (what is "
                f"kept in {folder} is from before); {_REPAIR}"
            )


@contextmanager
def within_memory(plan: Plan, *, where: str, kept: Callable[[], str]) -> Iterator[None]:
    """Turn memory that runs out meanwhile into a sentence about what would take less of it."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise TrainingError(
            f"memory ran out {where}, with batches of {_sizes(plan)} images of "
            f"{plan.setup.image_size} pixels, so training stopped ({kept()}); {_smaller(plan)}"
        ) from error


def _sizes(plan: Plan) -> str:
    if plan.setup.inner_size is None:
        return str(plan.sizes.outer)
    return f"{plan.sizes.inner} and {plan.sizes.outer}"


def _smaller(plan: Plan) -> str:
    if plan.setup.inner_size is None:
        return "make outer.size or data.image_size smaller"
    repair = "make inner.size, outer.size or data.image_size smaller"
    if any(isinstance(part, _BatchNorm) for part in plan.model.modules()):
        repair += ", or set method.batch_norm=frozen, with which a step goes in pieces that fit"
    return repair
