"""The operators that the step puts in the place of torch's, while a loss is computed on a CPU.

Nothing of a model is copied or patched: torch asks a mode of its own about every function that is
called, and the mode answers some of the calls. Values and gradients are torch's, up to rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from cicf.maths.convolution import Geometry, convolved
from cicf.maths.operators import Statistics, Window, max_pooled, normalised, rectified

Answer = Callable[..., Tensor | None]
"""Takes what a function of torch takes; None if it should be left to torch."""
_Sizes = int | Sequence[int]


class LeanOperators(TorchFunctionMode):
    """Computes convolution, ReLU, pooling and batch norm by this project's operators."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return what a function of torch returns."""
        del types
        kwargs = kwargs or {}
        answer = _ANSWERS.get(func)
        if answer is not None and _is_plain(args[0] if args else kwargs.get("input")):
            found = answer(*args, **kwargs)
            if found is not None:
                return found
        return func(*args, **kwargs)


def _is_plain(x: object) -> bool:
    """Tell whether our operators may be used: plain numbers on a CPU that have a gradient."""
    return (
        isinstance(x, Tensor)
        and type(x) in (Tensor, nn.Parameter)
        and x.device.type == "cpu"
        and x.dtype in (torch.float32, torch.float64)
        and torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        # Inside a transform of torch.func, tensors stand for many.
        and torch._C._functorch.peek_interpreter_stack() is None
        # A checkpoint computes its part again later, when nobody answers for torch.
        and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    )


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Sizes = 1,
    padding: _Sizes | str = 0,
    dilation: _Sizes = 1,
    groups: int = 1,
) -> Tensor | None:
    if input.ndim != 4 or isinstance(padding, str) or not _is_plain(weight):
        return None
    if input.dtype != weight.dtype:
        return None
    how = Geometry(_two(stride), _two(padding), _two(dilation), groups)
    return convolved(input, weight, bias, how)


def _relu(input: Tensor, inplace: bool = False) -> Tensor | None:
    if not input.requires_grad or (inplace and (input.is_leaf or input._is_view())):
        return None
    return rectified(input, in_place=inplace)


def _relu_(input: Tensor) -> Tensor | None:
    return _relu(input, inplace=True)


def _max_pool2d(
    input: Tensor,
    kernel_size: _Sizes,
    stride: _Sizes | None = None,
    padding: _Sizes = 0,
    dilation: _Sizes = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor | None:
    if input.ndim != 4 or return_indices or not input.requires_grad:
        return None
    size = _two(kernel_size)
    moves = _two(stride) if stride else size
    return max_pooled(input, Window(size, moves, _two(padding), _two(dilation), ceil_mode))


def _batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor | None:
    del momentum
    if training or input.ndim != 4 or not input.requires_grad:
        return None
    if running_mean is None or running_var is None or weight is None or bias is None:
        return None
    if running_mean.requires_grad or running_var.requires_grad or input.dtype != weight.dtype:
        return None
    return normalised(input, weight, bias, Statistics(running_mean, running_var, eps))


def _view(input: Tensor, *shape: Any) -> Tensor | None:
    """Let a view be taken of what is in torch's own order, as a model expects it to be."""
    is_ours = input.ndim == 4 and not input.is_contiguous()
    return input.contiguous().view(*shape) if is_ours else None


def _drawn(func: Callable[..., Tensor]) -> Answer:
    """Let random numbers be drawn in torch's own order, so that they are those that torch draws."""

    def answer(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
        if input.ndim != 4 or input.is_contiguous():
            return None
        return func(input.contiguous(), *args, **kwargs)

    return answer


def _two(sizes: _Sizes) -> tuple[int, int]:
    if isinstance(sizes, int):
        return sizes, sizes
    found = tuple(sizes)
    return (found[0], found[0]) if len(found) == 1 else (found[0], found[1])


_ANSWERS: dict[Callable[..., Any], Answer] = {
    torch.conv2d: _conv2d,
    F.relu: _relu,
    F.relu_: _relu_,
    torch.relu: _relu,
    torch.relu_: _relu_,
    Tensor.relu: _relu,
    Tensor.relu_: _relu_,
    torch.max_pool2d: _max_pool2d,
    F.batch_norm: _batch_norm,
    Tensor.view: _view,
    **{each: _drawn(each) for each in (F.dropout, torch.rand_like, torch.randn_like)},
    **{each: _drawn(each) for each in (torch.dropout, torch.bernoulli, torch.randint_like)},
}
