"""The operators that the step puts in the place of torch's, while a loss is computed on a CPU.

Nothing of a model is copied or patched: torch asks a mode of its own about every function that is
called, and the mode answers some of the calls. Values and gradients are torch's, up to rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from cicf.maths.convolution import Geometry, convolved
from cicf.maths.folded import Convolved, folded, is_worth_folding
from cicf.maths.linear import linear
from cicf.maths.operators import (
    Statistics,
    Window,
    max_pooled,
    normalised,
    place_of,
    rectified,
    rectified_and_pooled,
)
from cicf.maths.origin import PassedOverError, is_passed_over, origin_of, pass_over, remember

Answer = Callable[..., Tensor | None]
"""Takes what a function of torch takes; None if it should be left to torch."""
_Sizes = int | Sequence[int]


class LeanOperators(TorchFunctionMode):
    """Computes some layers by this project's operators: convolution, linear, ReLU, pooling, norm.

    What they return has its channels last in memory, which a model sees only where it asks for it:
    a view that torch cannot take of such a tensor is one of a copy. If they are to be fine,
    convolutions round as torch's do, which takes more time.
    """

    def __init__(self, *, is_fine: bool = False) -> None:
        super().__init__()
        self._operators: dict[Callable[..., Any], Answer] = {
            **_OPERATORS,
            torch.conv2d: partial(_conv2d, is_fine=is_fine),
        }

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
        if func in _ASKING and any(map(is_passed_over, tree_leaves((args, kwargs)))):
            raise PassedOverError(f"{func.__name__} of a tensor that is not part of the graph")
        answer = self._operators.get(func)
        if answer is None or not _is_usual():
            answer = _LAYOUTS.get(func)
        found = None if answer is None else answer(*args, **kwargs)
        return func(*args, **kwargs) if found is None else found


def _is_usual() -> bool:
    """Tell whether torch is in the state that our operators are made for."""
    return (
        torch.is_grad_enabled()
        and not torch.is_autocast_enabled("cpu")
        and forward_ad._current_level < 0
        # Inside a transform of torch.func, tensors stand for many.
        and torch._C._functorch.peek_interpreter_stack() is None
        # A checkpoint computes its part again later, when nobody answers for torch.
        and torch._C._autograd._top_saved_tensors_default_hooks(True) is None
    )


def _are_plain(x: Tensor, *others: Tensor | None) -> bool:
    """Tell whether our operators may be used: numbers on a CPU, of one precision."""
    are_numbers = all(
        type(each) in (Tensor, nn.Parameter)
        and each.device.type == "cpu"
        and each.layout is torch.strided
        and each.dtype == x.dtype in (torch.float32, torch.float64)
        for each in (x, *others)
        if each is not None
    )
    # Not all that our operators are made of takes a batch without samples.
    return are_numbers and x.numel() > 0


def _conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _Sizes = 1,
    padding: _Sizes | str = 0,
    dilation: _Sizes = 1,
    groups: int = 1,
    *,
    is_fine: bool,
) -> Tensor | None:
    if not _are_plain(input, weight, bias) or input.ndim != 4 or isinstance(padding, str):
        return None
    how = Geometry(_two(stride), _two(padding), _two(dilation), groups, is_fine)
    found = convolved(input, weight, bias, how)
    if bias is None:
        remember(found, input, weight, how=how)
    return found


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor | None:
    if not _are_plain(input, weight, bias) or weight.ndim != 2 or input.ndim == 0:
        return None
    if bias is not None and bias.shape != weight.shape[:1]:
        return None
    return linear(input, weight, bias)


def _relu(input: Tensor, inplace: bool = False) -> Tensor | None:
    if not (_are_plain(input) and input.requires_grad):
        return None
    if inplace and (input.is_leaf or input._is_view()):
        return None
    before = place_of(input)
    found = rectified(input, in_place=inplace)
    remember(found, before)
    return found


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
    if not _are_plain(input) or input.ndim != 4 or return_indices or not input.requires_grad:
        return None
    size = _two(kernel_size)
    # torch takes an empty stride for none.
    moves = size if stride is None or stride == () or stride == [] else _two(stride)
    window = Window(size, moves, _two(padding), _two(dilation), ceil_mode)
    origin = origin_of(input)
    if origin is None or origin.how is not None:
        return max_pooled(input, window)
    pass_over(input)
    return rectified_and_pooled(origin.sources[0], input, window)


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
    if training or not _are_plain(input, running_mean, running_var, weight, bias):
        return None
    if running_mean is None or running_var is None or weight is None or bias is None:
        return None
    constants = running_mean, running_var
    if input.ndim != 4 or not input.requires_grad or any(c.requires_grad for c in constants):
        return None
    if any(each.shape != input.shape[1:2] for each in (*constants, weight, bias)):
        return None
    by, origin = Statistics(running_mean, running_var, eps), origin_of(input)
    if origin is not None and origin.how is not None:
        x, kernel = origin.sources
        convolution = Convolved(x, kernel, origin.how, input)
        if is_worth_folding(convolution, by):
            pass_over(input)
            return folded(convolution, weight, bias, by)
    return normalised(input, weight, bias, by)


def _viewed(func: Callable[..., Tensor]) -> Answer:
    """Let a view be taken of what is in torch's own order, where it cannot be taken of ours."""

    def answer(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
        try:
            return func(input, *args, **kwargs)
        except RuntimeError:
            if input.is_contiguous():
                raise
            return func(input.contiguous(), *args, **kwargs)

    return answer


def _drawn(func: Callable[..., Tensor]) -> Answer:
    """Let random numbers be drawn in torch's own order, so that they are those that torch draws."""

    def answer(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
        if not _has_channels_last(input):
            return None
        copy = input.contiguous()
        version = copy._version
        found = func(copy, *args, **kwargs)
        if copy._version > version:
            return input.copy_(copy)
        return None if found is copy else found

    return answer


def _alike(func: Callable[..., Tensor]) -> Answer:
    """Let a new tensor be in torch's own order, since random numbers may be drawn into it."""

    def answer(input: Tensor, *args: Any, **kwargs: Any) -> Tensor | None:
        if not _has_channels_last(input):
            return None
        return func(input, *args, **{"memory_format": torch.contiguous_format, **kwargs})

    return answer


def _has_channels_last(x: object) -> bool:
    return (
        type(x) is Tensor
        and x.ndim == 4
        and x.device.type == "cpu"
        and torch._C._functorch.peek_interpreter_stack() is None
        and not x.is_contiguous()
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def _two(sizes: _Sizes) -> tuple[int, int]:
    if not isinstance(sizes, Sequence):
        return int(sizes), int(sizes)
    found = tuple(sizes)
    return (found[0], found[0]) if len(found) == 1 else (found[0], found[1])


_ASKING = {torch.autograd.grad, Tensor.register_hook, Tensor.retain_grad}
_OPERATORS: dict[Callable[..., Any], Answer] = {
    F.linear: _linear,
    F.relu: _relu,
    F.relu_: _relu_,
    torch.relu: _relu,
    torch.relu_: _relu_,
    Tensor.relu: _relu,
    Tensor.relu_: _relu_,
    F.max_pool2d: _max_pool2d,
    torch.max_pool2d: _max_pool2d,
    F.batch_norm: _batch_norm,
}
_LAYOUTS: dict[Callable[..., Any], Answer] = {
    **{each: _viewed(each) for each in (Tensor.view, Tensor.view_as)},
    **{each: _drawn(each) for each in (F.dropout, torch.dropout, F.alpha_dropout)},
    **{each: _drawn(each) for each in (torch.bernoulli, Tensor.bernoulli, F.gumbel_softmax)},
    **{each: _alike(each) for each in (torch.rand_like, torch.randn_like, torch.randint_like)},
    **{each: _alike(each) for each in (torch.empty_like, torch.zeros_like, torch.ones_like)},
}
