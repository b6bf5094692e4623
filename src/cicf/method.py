"""What a method is: one draw in, one gradient out, with the terms to log."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from cicf.core.draw import Draw, Samples
from cicf.core.frozen import Frozen
from cicf.core.pace import Pace
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.data.transforms import HALF
from cicf.intervention.step import StateDict
from cicf.models.split import SplitModel

Logged = Mapping[str, float | Tensor]
"""The terms of a step by name; each is a number, or a tensor that holds one."""
Deploy = Literal["theta", "theta_dagger"]
"""Which parameters are the model: where training stands, or where the virtual step leads."""


@dataclass(frozen=True, slots=True)
class Given:
    """Holds what a method is built for: the network, and what is known of the run."""

    model: SplitModel
    num_classes: int = 2
    sources: tuple[int, ...] = (0,)
    """The domains that are trained on, as `Samples.domain` numbers them; they may have gaps."""
    num_images: int = 1
    """Images that are trained on."""
    image_size: int = 32
    epochs: int = 1
    """Epochs of the run, those of phases before the last not counted."""
    steps_per_epoch: int = 1
    lr: float = 0.01
    """β at the start."""
    mean: tuple[float, float, float] = HALF[0]
    """What was taken from the channels of an image, whose pixels are 0 to 1."""
    std: tuple[float, float, float] = HALF[1]
    """What the channels were divided by then."""


class Turn(NamedTuple):
    """Is one of the updates that a method makes on a draw, each by an optimiser of its own."""

    name: str
    parameters: tuple[nn.Parameter, ...]
    """What it moves; gradients of other parameters are thrown away."""
    backward: Callable[[Draw], Logged]
    """Accumulates the gradient into `.grad`."""
    moves_itself: bool = False
    """Whether `backward` moves the parameters, at the learning rate `Method.lr`: no momentum, no
    decay, no clipping."""


class Phase(NamedTuple):
    """Is a stretch of epochs with optimisers and a schedule of its own; all but the last are not
    evaluated."""

    name: str
    epochs: int
    starts_fresh: bool = False
    """Whether the network goes back to where the run began."""


class Method(nn.Module, ABC):
    """Turns a draw into a gradient; its own parameters and buffers are trained and saved with it.

    `sampling` says what it draws. Of the terms that it logs, `loss` is the one it minimises.
    """

    sampling: Sampling
    least_domains: int = 1
    """Source domains without which the method makes no sense."""
    lr: float = 0.0
    """β of the step, set before each: for what moves parameters itself."""
    is_logged: bool = True
    """Whether the terms of the step are written down, set before each: what is only to be known
    need not be computed otherwise."""

    def __init__(self, model: SplitModel) -> None:
        super().__init__()
        # In a tuple, or the model would be a part of the method and be saved twice.
        self._model = (model,)

    @property
    def model(self) -> SplitModel:
        """Return the network that is trained."""
        return self._model[0]

    @property
    def needs_domains(self) -> bool:
        """Tell whether images have to say which domain they come from."""
        return self.sampling.needs_domains

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Return the stretches of the run; empty for one, as long as the run."""
        return ()

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the updates of a step in their order: by default one, of all that is trained."""
        return (Turn("all", self.trained, self.backward),)

    @property
    def trained(self) -> tuple[nn.Parameter, ...]:
        """Return the trainable parameters of the network and of the method."""
        every = [*self.model.parameters(), *self.parameters()]
        return tuple(parameter for parameter in every if parameter.requires_grad)

    @abstractmethod
    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient into `.grad`, as `loss.backward()` would, and return terms."""

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Act before an epoch, counted from 0; not called again when a run resumes within one.

        `images` are those that are trained on, not augmented.
        """

    def after_step(self) -> None:
        """Act after the step, all turns of it."""

    @property
    def pace(self) -> Pace | None:
        """Return how a step goes through its batch; None if that is not known, or not chosen."""
        return None

    def keep_pace(self, pace: Pace) -> None:
        """Go on as an earlier part of the run did."""
        del pace

    @property
    def seconds(self) -> Mapping[str, float]:
        """Return the time of all steps so far by what they consist of; empty if not measured."""
        return {}

    def theta_dagger(self, batches: Iterable[Samples]) -> StateDict | None:
        """Return the model's state at θ†, g† taken over these batches; None if there is no θ†."""
        del batches
        return None


class About(NamedTuple):
    """Holds what a table of methods says of one."""

    reference: str
    """Who published it, and where."""
    needs_domains: bool = False
    extra_networks: str = "none"
    """What it trains beside the network."""
    order: Literal[1, 2] = 1
    """2 if it takes second derivatives."""
    norm_updates: tuple[int, int] = (1, 0)
    """How often a step moves the running statistics of batch norm: a + b times the domains; of
    several phases, in the last."""
    cost: float | None = None
    """Seconds of a step against those of ERM, as benchmarks/methods.py measures them; None where
    that was not done."""


class MethodConfig(Frozen, ABC):
    """Holds the options of a method and builds it."""

    about: ClassVar[About] = About(reference="your own")
    name: str
    """The method, as `cicf methods` lists it."""
    deploy: Deploy = "theta"
    """Which parameters are stored as the model."""

    @abstractmethod
    def build(self, given: Given) -> Method:
        """Return the method for a model that is about to be trained."""


class LossMethod(Method, ABC):
    """Is a method that is a loss of the outer batch, and nothing more.

    It can be the loss inside of CICF's step, too.
    """

    @abstractmethod
    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, " m"] | Float[Tensor, ""]:
        """Return the loss of each sample, or that of the batch where its samples affect each other.

        It must not change any state: CICF calls it three times a step. What is random in it comes
        from torch's global generator, which CICF plays again.
        """

    def forward(self, model: SplitModel, batch: Samples) -> Float[Tensor, " m"] | Float[Tensor, ""]:
        """Return the loss."""
        return self.loss(model, batch)

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the mean loss of the outer batch."""
        loss = self.loss(self.model, draw.outer).mean()
        loss.backward()
        return {"loss": loss.detach()}


def cross_entropy(model: nn.Module, batch: Samples) -> Float[Tensor, " m"]:
    """Return the cross-entropy of each sample."""
    return F.cross_entropy(model(batch.x), batch.y, reduction="none")


def source_ids(domain: Int[Tensor, " m"], sources: tuple[int, ...]) -> Int[Tensor, " m"]:
    """Return the domains counted from 0 without gaps, in the order of `sources`."""
    return torch.searchsorted(torch.tensor(sources, device=domain.device), domain)
