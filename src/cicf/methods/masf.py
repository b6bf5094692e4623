"""MASF: after a virtual step on some domains, classes are aligned and samples cluster by class."""

import math
from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.func import functional_call

from cicf.core.draw import Draw, Samples
from cicf.data.sampling import Sampling
from cicf.maths.soft_confusion import misalignment, soft_confusions
from cicf.maths.triplet import semi_hard_triplet_loss
from cicf.method import About, Given, Logged, Method, MethodConfig, Turn, cross_entropy
from cicf.models.split import SplitModel
from cicf.models.taps import Seen, features_and_logits, head_of
from cicf.virtual_step import meta_split

SLOPE = 0.2
"""Of the leaky ReLU, below 0 [code]."""


class MasfConfig(MethodConfig):
    """Aligns classes across domains, and clusters samples by class, where a virtual step leads."""

    about: ClassVar[About] = About(
        reference="Dou et al., NeurIPS 2019",
        needs_domains=True,
        extra_networks="embedding of features, two layers",
        cost=1.8,
    )
    name: Literal["masf"] = "masf"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The virtual step is one of training, so θ is the model."""
    inner_lr: NonNegativeFloat = 1e-5
    """Length of the virtual step [code]."""
    order: Literal[1, 2] = 1
    """1 leaves the second derivative of the virtual step out [code]; 2 takes it along."""
    clip: PositiveFloat = 2.0
    """Norm at which each tensor of the gradients of both the virtual step and the alignment is
    clipped [code]; `inf` for none."""
    global_weight: NonNegativeFloat = 1.0
    """Weight of the alignment of classes across domains [code]."""
    temperature: PositiveFloat = 2.0
    """τ, which divides the mean logits of a class [code]."""
    local_weight: NonNegativeFloat = 0.005
    """Weight of the triplet loss for the network [code]."""
    embedding_weight: NonNegativeFloat = 0.005
    """Weight of the triplet loss for the embedding [code]: its learning rate over the run's."""
    margin: NonNegativeFloat = 10.0
    """Margin of the triplet loss, in squared distances [code]."""
    local_share: float = Field(default=1 / 3, gt=0, le=1)
    """Part of each domain's images that the triplet loss takes, at least one image [code]."""
    hidden_size: PositiveInt = 1024
    """Width of the embedding's first layer [code]."""
    embedding_size: PositiveInt = 256
    """Width of its second layer, which triplets are compared in [code]."""
    updates: Literal["separate", "joint"] = "separate"
    """How the network moves in a step: by an optimiser for the task and one for the alignment
    [code], or by one for their sum [mem]."""

    def build(self, given: Given) -> "Masf":
        """Return MASF on this model, with an embedding for its features."""
        return Masf(self, given)


class _Step(NamedTuple):
    """Holds all gradients of a step, which are taken at the same weights, and its losses."""

    draw: Draw
    task: tuple[Tensor | None, ...]
    alignment: tuple[Tensor | None, ...]
    embedding: tuple[Tensor | None, ...]
    terms: Logged


class Masf(Method):
    """Draws as many images of each source domain, and the one to hold out anew in every step."""

    sampling = Sampling(outer="domains")
    least_domains = 2

    def __init__(self, config: MasfConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config = config
        self.embedding = embedding(
            head_of(given.model).in_features, config.hidden_size, config.embedding_size
        )
        self._step: _Step | None = None

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the updates of the network for the task and the alignment, and the embedding's."""
        network = tuple(self._network().values())
        last = Turn("embedding", tuple(self.embedding.parameters()), self._backward_embedding)
        if self._config.updates == "joint":
            return (Turn("network", network, self.backward), last)
        alignment = Turn("alignment", network, self._backward_alignment)
        return (Turn("task", network, self.backward), alignment, last)

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the task loss, and that of the alignment if both are one."""
        step = self._of(draw)
        _accumulate(self._network().values(), step.task)
        if self._config.updates == "joint":
            _accumulate(self._network().values(), step.alignment)
        return step.terms

    def _backward_alignment(self, draw: Draw) -> Logged:
        _accumulate(self._network().values(), self._of(draw).alignment)
        return {}

    def _backward_embedding(self, draw: Draw) -> Logged:
        _accumulate(self.embedding.parameters(), self._of(draw).embedding)
        return {}

    def after_step(self) -> None:
        """Let go of the step: the next one holds another domain out."""
        self._step = None

    def _network(self) -> dict[str, nn.Parameter]:
        """Return the parameters of the network that are trained, by name."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def _of(self, draw: Draw) -> _Step:
        """Return the gradients of a step, computed in the first of its turns."""
        if self._step is None or self._step.draw is not draw:
            self._step = self._taken(draw)
        return self._step

    def _taken(self, draw: Draw) -> _Step:
        config, theta = self._config, self._network()
        wrt = list(theta.values())
        train, test = meta_split(draw.outer)
        task_loss = _mean_over_domains(cross_entropy(self.model, train), train.domain)
        task = torch.autograd.grad(
            task_loss, wrt, create_graph=config.order == 2, allow_unused=True
        )
        moved = _moved(theta, task, inner_lr=config.inner_lr, clip=config.clip, order=config.order)
        seen = _seen(self.model, moved, draw.outer)
        global_loss = self._global_loss(seen, draw.outer, held_out=int(test.domain[0]))
        local_loss = self._local_loss(seen, draw.outer)
        meta_loss = config.global_weight * global_loss + config.local_weight * local_loss
        alignment = torch.autograd.grad(meta_loss, wrt, retain_graph=True, allow_unused=True)
        own = torch.autograd.grad(
            config.embedding_weight * local_loss, list(self.embedding.parameters())
        )
        return _Step(
            draw=draw,
            task=tuple(None if g is None else g.detach() for g in task),
            alignment=tuple(None if g is None else _clipped(g, config.clip) for g in alignment),
            embedding=own,
            terms={
                "loss": (task_loss + meta_loss).detach(),
                "task_loss": task_loss.detach(),
                "global_loss": global_loss.detach(),
                "local_loss": local_loss.detach(),
            },
        )

    def _global_loss(self, seen: Seen, batch: Samples, *, held_out: int) -> Float[Tensor, ""]:
        """Return how the soft confusions of the held-out domain differ from the others', L_g."""
        found = {}
        for each in batch.domain.unique().tolist():
            own = batch.domain == each
            found[each] = soft_confusions(
                seen.logits[own], batch.y[own], temperature=self._config.temperature
            )
        test = found.pop(held_out)
        return torch.stack([misalignment(test, other) for other in found.values()]).mean()

    def _local_loss(self, seen: Seen, batch: Samples) -> Float[Tensor, ""]:
        """Return the triplet loss of a part of each domain's images, L_l."""
        places = _first_of_each(batch.domain, self._config.local_share)
        z = self.embedding(seen.features[places])
        return semi_hard_triplet_loss(z, batch.y[places], margin=self._config.margin)


def embedding(in_features: int, hidden_size: int, size: int) -> nn.Sequential:
    """Return the network in whose space triplets are compared."""
    layers = nn.Linear(in_features, hidden_size), nn.Linear(hidden_size, size)
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
        nn.init.zeros_(layer.bias)
    first, second = layers
    return nn.Sequential(first, nn.LeakyReLU(SLOPE), second, nn.LeakyReLU(SLOPE))


class _Tapped(nn.Module):
    """Puts out features beside logits, with what parameters it is called with."""

    def __init__(self, model: SplitModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Float[Tensor, "n c h w"]) -> Seen:
        return features_and_logits(self.model, x)


def _seen(model: SplitModel, moved: dict[str, Tensor], batch: Samples) -> Seen:
    """Return the features and the logits of a batch where the virtual step leads."""
    # Copied, or batch norm would track the statistics of a step that is never taken.
    state = {name: buffer.clone() for name, buffer in model.named_buffers()} | moved
    named = {f"model.{name}": value for name, value in state.items()}
    seen: Seen = functional_call(_Tapped(model), named, (batch.x,))
    return seen


def _moved(
    theta: dict[str, nn.Parameter],
    g: tuple[Tensor | None, ...],
    *,
    inner_lr: float,
    clip: float,
    order: int,
) -> dict[str, Tensor]:
    """Return θ' = θ − α clip(g); at order 1 the step is a constant."""
    found: dict[str, Tensor] = {}
    for (name, value), slope in zip(theta.items(), g, strict=True):
        found[name] = value
        if slope is not None:
            step = inner_lr * _clipped(slope, clip)
            found[name] = value - (step if order == 2 else step.detach())
    return found


def _clipped(g: Float[Tensor, "..."], most: float) -> Float[Tensor, "..."]:
    """Return a tensor that is shortened to a norm, if it is longer."""
    if math.isinf(most):
        return g
    length: Tensor = torch.linalg.vector_norm(g)
    return g * (most / length.clamp(min=most))


def _mean_over_domains(values: Float[Tensor, " m"], domain: Int[Tensor, " m"]) -> Float[Tensor, ""]:
    """Return the mean over domains of the mean of each."""
    return torch.stack([values[domain == each].mean() for each in domain.unique()]).mean()


def _first_of_each(domain: Int[Tensor, " m"], share: float) -> Int[Tensor, " n"]:
    """Return where the first images of each domain are; their order in a batch is random."""
    own = [(domain == each).nonzero()[:, 0] for each in domain.unique()]
    return torch.cat([places[: max(1, math.floor(share * len(places)))] for places in own])


def _accumulate(parameters: Iterable[nn.Parameter], gradients: tuple[Tensor | None, ...]) -> None:
    """Add gradients to `.grad`, which never is the tensor that is given."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient is None:
            continue
        parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad + gradient
