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
from cicf.core.batch import Batch
from cicf.maths.intervention import Parameters
from cicf.maths.shares import Derivative, Loss

BatchNorm = Literal["batch", "running", "frozen"]
"""`batch`: by batch statistics in all passes, where the model's mode says so. `running`: the inner
passes by running statistics, which the outer pass trains. `frozen`: by running statistics, which
never move."""

LossFunction = Callable[[nn.Module, Any], Tensor]  # Any: the form of a batch is the user's own
"""model, batch → one value per sample [m], or one value for the batch. A loss that is a module is
part of the objective: its own parameters are trained and belong to θ."""


class Objective(nn.Module):
    """Is the root that holds model and loss and whose forward is the loss."""

    def __init__(self, model: nn.Module, loss: LossFunction, batch_norm: BatchNorm) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self._policy = batch_norm

    def forward(self, batch: Batch, then: Callable[[Tensor], Derivative]) -> Derivative:
        """Return then(loss), called while this module's tensors are those of the call."""
        return then(self.loss(self.model, batch))

    def inner_loss(self, *, is_curved: bool) -> Loss:
        """Return the loss of pass 1 and pass 3, which leaves the buffers alone."""
        # The fused attention kernels have no second derivative.
        kernel = (lambda: sdpa_kernel(SDPBackend.MATH)) if is_curved else nullcontext
        return self._function(is_outer=False, written={}, scale=1.0, kernel=kernel)

    def outer_loss(self, *, written: dict[str, Tensor], scale: float | Tensor) -> Loss:
        """Return the loss of pass 2 times `scale`; what it writes to buffers goes to `written`."""
        return self._function(is_outer=True, written=written, scale=scale, kernel=nullcontext)

    def split(self, h: Sequence[str]) -> tuple[Parameters, Parameters]:
        """Return the trainable parameters after Z and before it, θ and φ, by their names here.

        A tensor with names on both sides of the cut is θ and moves everywhere.
        """
        names: dict[nn.Parameter, list[str]] = {}
        for name, parameter in self.named_parameters(remove_duplicate=False):
            if is_lazy(parameter):
                raise ConfigError(
                    f"parameter {name.removeprefix('model.')!r} has no shape yet; run one batch "
                    "through the model first"
                )
            if parameter.requires_grad:
                names.setdefault(parameter, []).append(name)
        before = tuple(f"model.{name}" for name in h)
        theta: Parameters = {}
        phi: Parameters = {}
        for trainable, aliases in names.items():
            is_before = all(_is_within(alias, before) for alias in aliases)
            (phi if is_before else theta)[aliases[0]] = trainable
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

    def _function(
        self,
        *,
        is_outer: bool,
        written: dict[str, Tensor],
        scale: float | Tensor,
        kernel: Callable[[], AbstractContextManager[None]],
    ) -> Loss:
        def loss(
            parameters: Parameters, batch: Batch, then: Callable[[Tensor], Derivative]
        ) -> Derivative:
            # Copies, or batch norm would track the statistics of steps that are never taken.
            buffers = {name: buffer.clone() for name, buffer in self.named_buffers()}
            tensors = {**parameters, **buffers}
            # A scale on a device is not looked at: that would wait for the device.
            is_plain = not isinstance(scale, Tensor) and scale == 1
            scaled = then if is_plain else lambda value: then(value * scale)
            with self._batch_norm(is_outer=is_outer), kernel(), torch.enable_grad():
                result: Derivative = functional_call(self, tensors, (batch, scaled))
            written.update({name: tensors[name].detach() for name in buffers})
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


def _is_within(name: str, prefixes: Sequence[str]) -> bool:
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def _norms(module: nn.Module) -> list[_NormBase]:
    return [child for child in module.modules() if isinstance(child, _NormBase)]
