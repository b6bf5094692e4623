"""A model and its loss as one function of named parameters, neither copied nor patched."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.parameter import is_lazy

from cicf.core import ConfigError
from cicf.core.batch import Batch, guarded
from cicf.maths.convolution import channels_last
from cicf.maths.intervention import Parameters
from cicf.maths.moving import leaves
from cicf.maths.origin import PassedOverError
from cicf.maths.shares import Derivative, Loss
from cicf.maths.substitution import LeanOperators

BatchNorm = Literal["batch", "running", "frozen"]
"""`batch`: by batch statistics in all passes, where the model's mode says so. `running`: the inner
passes by running statistics, which the outer pass trains. `frozen`: by running statistics, which
never move."""

LossFunction = Callable[[nn.Module, Any], Tensor]  # Any: the form of a batch is the user's own
"""model, batch → one value per sample [m], or one value for the batch. A loss that is a module is
part of the objective: its own parameters are trained and belong to θ."""


_SHALLOW = 8
"""Convolutions up to which roundings have not added up to much."""


class Objective(nn.Module):
    """Is the root that holds model and loss and whose forward is the loss."""

    def __init__(self, model: nn.Module, loss: LossFunction, batch_norm: BatchNorm) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self._policy = batch_norm
        self._is_lean, self._is_left_to_torch = False, False
        self._is_deep = sum(isinstance(each, nn.Conv2d) for each in self.modules()) > _SHALLOW

    def forward(self, batch: Batch | None, then: Callable[[Tensor], Derivative]) -> Derivative:
        """Return then(loss), called while this module's tensors are those of the call."""
        if batch is None:
            return then(torch.empty(0))
        with guarded(batch) as own:
            with LeanOperators(is_fine=self._is_deep) if self._is_lean else nullcontext():
                loss = self.loss(self.model, own)
            return then(loss)

    @contextmanager
    def lean(self, is_lean: bool) -> Iterator[None]:
        """Compute losses by this project's own operators meanwhile, where that is faster."""
        device = next(self.parameters()).device.type
        is_open = not (self._is_left_to_torch or torch.is_autocast_enabled("cpu"))
        self._is_lean = is_lean and device == "cpu" and is_open
        try:
            yield
        finally:
            self._is_lean = False

    def is_misled(self, error: BaseException) -> bool:
        """Tell whether a model failed because our operators are not torch's.

        They put channels last, and see to the views that a model takes, but not to those within a
        checkpoint or within a backward of the model's own, which run when nobody answers for torch.
        They also pass over tensors between two layers, whose slopes a model may ask for.
        """
        is_view = isinstance(error, RuntimeError) and "view size is not compatible" in str(error)
        return (is_view or isinstance(error, PassedOverError)) and not self._is_left_to_torch

    def leave_to_torch(self) -> None:
        """Compute all by torch's operators from now on."""
        self._is_left_to_torch = True

    def leaves(self, parameters: Parameters) -> Parameters:
        """Return the values as leaves of a graph of their own, in the order that is fastest."""
        values = parameters
        if self._is_lean:
            values = {name: channels_last(value.detach()) for name, value in parameters.items()}
        return leaves(values)

    def inner_loss(self, *, is_curved: bool) -> Loss:
        """Return the loss of pass 1 and pass 3, which leaves the buffers alone."""
        # The fused attention kernels have no second derivative.
        kernel = (lambda: sdpa_kernel(SDPBackend.MATH)) if is_curved else nullcontext
        return self._function(is_outer=False, written=None, scale=1.0, kernel=kernel)

    def outer_loss(self, *, written: dict[Tensor, Tensor] | None, scale: float | Tensor) -> Loss:
        """Return the loss of pass 2 times `scale`; buffers that it changes go to `written`."""
        return self._function(is_outer=True, written=written, scale=scale, kernel=nullcontext)

    def split(self, h: Sequence[str]) -> tuple[Parameters, Parameters]:
        """Return the trainable parameters after Z and before it, θ and φ, by their names here.

        A tensor with places on both sides of the cut is θ and moves everywhere.
        """
        before = tuple(f"model.{name}" for name in h)
        sides: dict[Tensor, list[bool]] = {}
        names: dict[Tensor, str] = {}
        for aliases, tensor in _places(self):
            if is_lazy(tensor):
                raise ConfigError(
                    f"parameter {aliases[0].removeprefix('model.')!r} has no shape yet; run one "
                    "batch through the model first"
                )
            if isinstance(tensor, nn.Parameter) and tensor.requires_grad:
                names.setdefault(tensor, aliases[0])
                is_before = any(_is_within(alias, before) for alias in aliases)
                sides.setdefault(tensor, []).append(is_before)
        theta = {name: tensor for tensor, name in names.items() if not all(sides[tensor])}
        phi = {name: tensor for tensor, name in names.items() if all(sides[tensor])}
        if not theta:
            raise ConfigError(
                f"h={list(h)} leaves no trainable parameter after Z, so there is nothing to "
                "intervene on; cut earlier, or unfreeze what comes after"
            )
        return theta, phi

    def couples_samples(self, *, is_outer: bool) -> bool:
        """Tell whether batch statistics make the loss of a sample depend on its batch."""
        with self._batch_norm(is_outer=is_outer):
            return any(
                norm.training or norm.running_mean is None
                for norm in _norms(self)
                if not isinstance(norm, _InstanceNorm)
            )

    def trains_statistics(self) -> bool:
        """Tell whether the outer pass moves running statistics, which takes its whole batch."""
        with self._batch_norm(is_outer=True):
            return any(norm.training and norm.running_mean is not None for norm in _norms(self))

    def write(self, written: dict[Tensor, Tensor]) -> None:
        """Write what the outer pass left in the buffers, where it differs from what is there."""
        # Statistics always move; looking whether they did would wait for the device.
        moving = _statistics(self, is_trained=True)
        # All are looked at before one is written: buffers may share their memory.
        changed = [b for b, value in written.items() if b in moving or not torch.equal(b, value)]
        for buffer in changed:
            buffer.copy_(written[buffer])

    def _function(
        self,
        *,
        is_outer: bool,
        written: dict[Tensor, Tensor] | None,
        scale: float | Tensor,
        kernel: Callable[[], AbstractContextManager[None]],
    ) -> Loss:
        places = {aliases[0]: tensor for aliases, tensor in _places(self)}
        # A scale on a device is not looked at: that would wait for the device.
        is_plain = not isinstance(scale, Tensor) and scale == 1
        # Copies, or batch norm would track the statistics of steps that are never taken.
        copies: dict[Tensor, Tensor] = {}

        def loss(
            parameters: Parameters, batch: Batch | None, then: Callable[[Tensor], Derivative]
        ) -> Derivative:
            new = {places[name]: value for name, value in parameters.items()}
            if written is not None:
                # What each piece leaves in its copies is compared with the others'.
                copies.clear()
            _renew(copies, self)
            new.update(copies)
            slots = {place: new[tensor] for place, tensor in places.items() if tensor in new}
            scaled = then if is_plain else lambda value: then(value * scale)
            with self._batch_norm(is_outer=is_outer), kernel(), torch.enable_grad():
                # Each place is named once, so there are no ties left to look for: torch restores
                # a module with two names wrongly.
                result: Derivative = functional_call(
                    self, slots, (batch, scaled), tie_weights=False
                )
                still = _statistics(self, is_trained=False)
            if written is not None:
                for place, value in slots.items():
                    buffer = places[place]
                    if not isinstance(buffer, nn.Parameter) and buffer not in still:
                        _keep(written, buffer, value.detach())
            return result

        return loss

    @contextmanager
    def _batch_norm(self, *, is_outer: bool) -> Iterator[None]:
        """Let normalisation use running statistics where the policy says so, for one pass."""
        is_quiet = self._policy == "frozen" or (self._policy == "running" and not is_outer)
        switched = [norm for norm in _norms(self) if is_quiet and norm.training]
        for norm in switched:
            if norm.running_mean is None and not isinstance(norm, _InstanceNorm):
                raise ConfigError(
                    f"batch_norm={self._policy!r} needs running statistics, but a "
                    f"{type(norm).__name__} of the model keeps none; use batch_norm='batch', or "
                    "build it with track_running_stats=True"
                )
        for norm in switched:
            norm.training = False
        try:
            yield
        finally:
            for norm in switched:
                norm.training = True


def _places(root: nn.Module) -> list[tuple[list[str], Tensor]]:
    """Return every place that holds a tensor, once, with all its names."""
    modules: dict[nn.Module, list[str]] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        modules.setdefault(module, []).append(name)
    return [
        ([f"{prefix}.{local}" if prefix else local for prefix in prefixes], tensor)
        for module, prefixes in modules.items()
        for store in (module._parameters, module._buffers)
        for local, tensor in store.items()
        if tensor is not None
    ]


def _renew(copies: dict[Tensor, Tensor], module: nn.Module) -> None:
    """Copy the buffers again whose copies may have changed, so that a constant is copied once."""
    # Norms move their statistics without counting it as a change in place.
    moving = _statistics(module, is_trained=True)
    for buffer in module.buffers():
        if buffer not in copies or buffer in moving or copies[buffer]._version > 0:
            copies[buffer] = buffer.clone()


def _keep(written: dict[Tensor, Tensor], buffer: Tensor, value: Tensor) -> None:
    """Keep what the outer pass left in a buffer; its pieces may not disagree about it."""
    is_same = buffer not in written or torch.equal(written[buffer], value)
    if value.shape != buffer.shape or not is_same:
        raise ConfigError(
            f"a buffer of shape {list(buffer.shape)} takes on a value that depends on the size of "
            "the batch or on its pieces; leave chunk out, or keep the value outside of buffers"
        )
    written[buffer] = value


def _statistics(module: nn.Module, *, is_trained: bool) -> set[Tensor]:
    """Return the running statistics that move in this pass, or those that stay."""
    norms = (norm for norm in _norms(module) if norm.training == is_trained)
    return {buffer for norm in norms for buffer in norm.buffers(recurse=False)}


def _is_within(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _norms(module: nn.Module) -> list[_NormBase]:
    return [child for child in module.modules() if isinstance(child, _NormBase)]
