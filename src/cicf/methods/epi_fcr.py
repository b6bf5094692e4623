"""Epi-FCR: features and head are each trained beside a partner that is not used to them.

Needs domain labels.
"""

import copy
import math
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from cicf.core.draw import Draw
from cicf.core.modes import evaluating, norms_resting
from cicf.data.sampling import Sampling
from cicf.method import About, Given, Logged, Method, MethodConfig, Turn, source_ids
from cicf.models.split import SplitModel
from cicf.models.taps import features_and_logits, head_of

WARMUP = 500 / 3001
"""The part of the original's steps in which nothing is exchanged."""


class EpiFcrConfig(MethodConfig):
    """Trains features and head, each beside a partner of another domain or a random one."""

    about: ClassVar[About] = About(
        reference="Li et al., ICCV 2019",
        needs_domains=True,
        extra_networks="a network a domain, a random head",
        norm_updates=(0, 0),
        cost=2.1,
    )
    name: Literal["epi_fcr"] = "epi_fcr"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The network that all domains share is the model."""
    feature_weight: NonNegativeFloat = 2.0
    """λ_f, the weight of features before the head of another domain [code]."""
    head_weight: NonNegativeFloat = 0.05
    """λ_c, the weight of the head behind features of another domain [code]."""
    random_weight: NonNegativeFloat = 0.1
    """λ_r, the weight of features before a random head [code]."""
    warmup: float = Field(default=WARMUP, ge=0, le=1)
    """The part of the run's steps in which networks are trained apart; 500 of 3001 [code]."""
    batch_norm: Literal["frozen", "batch"] = "frozen"
    """Statistics of batch norm: the first ones throughout [code], or trained as usual."""

    def build(self, given: Given) -> "EpiFcr":
        """Return Epi-FCR on this model."""
        return EpiFcr(self, given)


class EpiFcr(Method):
    """Trains a network for each domain, and then the one of all beside parts of theirs."""

    sampling = Sampling(outer="domains")
    least_domains = 2
    steps_taken: Tensor

    def __init__(self, config: EpiFcrConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._sources = config, given.sources
        self._warmup = math.floor(config.warmup * given.epochs * given.steps_per_epoch)
        self.domain_networks = nn.ModuleList(_with_new_head(given.model) for _ in given.sources)
        self.random_head = _new_head(given.model).requires_grad_(False)
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.int64))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the networks of the domains, and then the network of all."""
        shared = tuple(each for each in self.model.parameters() if each.requires_grad)
        own = tuple(each for each in self.domain_networks.parameters() if each.requires_grad)
        return (
            Turn("domains", own, self.backward_domains),
            Turn("aggregate", shared, self.backward),
        )

    def backward_domains(self, draw: Draw) -> Logged:
        """Accumulate the gradient of CE_k in the network of each domain k."""
        batch, ids = draw.outer, source_ids(draw.outer.domain, self._sources)
        losses = []
        for k in ids.unique().tolist():
            network, mine = self._network(k), ids == k
            with self._resting(network):
                losses.append(F.cross_entropy(network(batch.x[mine]), batch.y[mine]))
        torch.stack(losses).sum().backward()
        return {"domain_loss": torch.stack(losses).detach().mean()}

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the network of all; those of the domains get none."""
        batch, ids = draw.outer, source_ids(draw.outer.domain, self._sources)
        with self._resting(self.model):
            z, logits = features_and_logits(self.model, batch.x)
        count = len(ids.unique())
        terms = {"cross_entropy": _sum_of_means(logits, batch.y, ids) / count}
        loss = terms["cross_entropy"]
        if int(self.steps_taken) >= self._warmup:
            config = self._config
            i, j = torch.randperm(len(self._sources))[:2].tolist()
            x, y, mine = batch.x[ids == i], batch.y[ids == i], z[ids == i]
            terms["random"] = _sum_of_means(self.random_head(z), batch.y, ids) / count
            terms["feature"] = F.cross_entropy(self._foreign_head(j, mine), y) / count
            terms["head"] = F.cross_entropy(self._on_foreign_features(j, x), y) / count
            loss = (
                loss
                + config.random_weight * terms["random"]
                + config.feature_weight * terms["feature"]
                + config.head_weight * terms["head"]
            )
        loss.backward()
        return {"loss": loss.detach()} | {name: each.detach() for name, each in terms.items()}

    def after_step(self) -> None:
        """Count the step, since the first ones exchange nothing."""
        self.steps_taken += 1

    def _foreign_head(self, j: int, z: Float[Tensor, "n d"]) -> Float[Tensor, "n c"]:
        """Return φ_j of these features; φ_j is a constant, the features are not."""
        head = head_of(self._network(j))
        bias = None if head.bias is None else head.bias.detach()
        return F.linear(z, head.weight.detach(), bias)

    def _on_foreign_features(
        self, j: int, x: Float[Tensor, "n 3 height width"]
    ) -> Float[Tensor, "n c"]:
        """Return φ of ψ_j(x), where ψ_j is as it would be used, and a constant."""
        network = self._network(j)
        with evaluating(network), torch.no_grad():
            z = features_and_logits(network, x).features
        logits: Tensor = head_of(self.model)(z)
        return logits

    def _network(self, k: int) -> SplitModel:
        network = self.domain_networks[k]
        assert isinstance(network, SplitModel)
        return network

    def _resting(self, module: nn.Module) -> AbstractContextManager[None]:
        """Let batch norm use its running statistics meanwhile, if that is asked for."""
        is_frozen = self._config.batch_norm == "frozen"
        return norms_resting(module) if is_frozen else nullcontext()


def _sum_of_means(
    logits: Float[Tensor, "m c"], y: Int[Tensor, " m"], ids: Int[Tensor, " m"]
) -> Float[Tensor, ""]:
    """Return Σ_k CE_k."""
    losses = [F.cross_entropy(logits[ids == k], y[ids == k]) for k in ids.unique()]
    return torch.stack(losses).sum()


def _with_new_head(model: SplitModel) -> SplitModel:
    """Return a copy of the network whose head is drawn anew, as the original's heads are."""
    network = copy.deepcopy(model)
    head_of(network).reset_parameters()
    return network


def _new_head(model: SplitModel) -> nn.Linear:
    head = copy.deepcopy(head_of(model))
    head.reset_parameters()
    return head
