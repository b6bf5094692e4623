"""Gradients on their way into `.grad`."""

from collections import Counter

import torch
from torch import Tensor

from cicf.maths.intervention import Parameters
from cicf.maths.shares import Gradients


def accumulate(parameters: Parameters, gradients: Gradients) -> None:
    """Add gradients to `.grad`; where there is none, a tensor that is nobody else's becomes it."""
    known = (gradient for gradient in gradients if gradient is not None)
    uses = Counter(gradient.untyped_storage().data_ptr() for gradient in known)
    for parameter, gradient in zip(parameters.values(), gradients, strict=True):
        if gradient is None:
            continue
        if parameter.grad is not None:
            parameter.grad += gradient
        elif uses[gradient.untyped_storage().data_ptr()] == 1 and _is_alike(gradient, parameter):
            parameter.grad = gradient
        else:
            parameter.grad = torch.empty_like(parameter).copy_(gradient)


def _is_alike(gradient: Tensor, parameter: Tensor) -> bool:
    """Tell whether a gradient has a memory of its own, in the same order as the parameter's."""
    is_whole = gradient.untyped_storage().nbytes() == gradient.nbytes
    is_same = gradient.dtype == parameter.dtype and gradient.stride() == parameter.stride()
    return is_whole and is_same and not gradient.requires_grad
