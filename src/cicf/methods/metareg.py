"""MetaReg: a regulariser of the last layer is learnt across domains, then used. Needs labels."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import FiniteFloat, PositiveFloat, PositiveInt
from torch import Tensor, nn

from cicf.core.draw import Draw, Samples
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.maths.regulariser import LinearHead, unrolled, weighted_l1
from cicf.method import (
    About,
    Given,
    Logged,
    Method,
    MethodConfig,
    Phase,
    Turn,
    cross_entropy,
    source_ids,
)
from cicf.models.taps import features_and_logits, head_of


class MetaRegConfig(MethodConfig):
    """Learns a weighted L1 of the last layer that helps other domains, then trains a fresh network.

    No code of the authors is public, so the defaults are not theirs.
    """

    about: ClassVar[About] = About(
        reference="Balaji et al., NeurIPS 2018",
        needs_domains=True,
        extra_networks="a head a domain, φ",
        order=2,
        cost=1.0,
    )
    name: Literal["metareg"] = "metareg"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The second phase is plain training with a regulariser, so θ is the model."""
    meta_epochs: PositiveInt = 5
    """Epochs in which φ is learnt, before those of the run; ours, since no number is public."""
    inner_steps: PositiveInt = 20
    """l, steps of the head that φ is learnt through; of a reimplementation by others [code]."""
    inner_lr: PositiveFloat = 1e-3
    """α₂, the learning rate of these steps; of a reimplementation by others [code]."""
    phi_lr: PositiveFloat = 1.0
    """α₃, the learning rate of φ, as a multiple of β; ours, since no number is public."""
    phi_start: FiniteFloat = 0.0
    """What every φ_i starts at; ours: 0, which is no regulariser."""
    is_nonnegative: bool = False
    """Whether φ is held at 0 or above; ours: the published formula does not ask for it."""

    def build(self, given: Given) -> "MetaReg":
        """Return MetaReg on this model."""
        return MetaReg(self, given)


class MetaReg(Method):
    """Learns φ in a first phase; in the second, φ is fixed and the network starts anew."""

    least_domains = 2
    has_learnt: Tensor

    def __init__(self, config: MetaRegConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._given = config, given
        head = head_of(given.model)
        self.heads = nn.ModuleList(copy.deepcopy(head) for _ in given.sources)
        self.phi = nn.Parameter(torch.full_like(head.weight, config.phi_start))
        self.register_buffer("has_learnt", torch.zeros((), dtype=torch.bool))

    @property
    def needs_domains(self) -> bool:
        """Tell that the first phase needs domains, whichever phase this is."""
        return True

    @property
    def sampling(self) -> Sampling:  # type: ignore[override]  # changes with the phase
        """Return as many images of each domain to learn φ, then those of plain training."""
        return Sampling() if self.has_learnt else Sampling(outer="domains")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Return the learning of φ, and the training with it."""
        return (
            Phase("regulariser", self._config.meta_epochs),
            Phase("training", self._given.epochs, starts_fresh=True),
        )

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the network and then φ, or the network alone."""
        network = [each for each in self.model.parameters() if each.requires_grad]
        if self.has_learnt:
            return (Turn("network", tuple(network), self.backward),)
        own = set(head_of(self.model).parameters())
        features = [each for each in network if each not in own]
        return (
            Turn("network", (*features, *self.heads.parameters()), self.backward),
            Turn("phi", (self.phi,), self.backward_phi),
        )

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Know which phase this is."""
        del images
        self.has_learnt.fill_(epoch >= self._config.meta_epochs)

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the network: with a head for each domain, or with R_φ."""
        if self.has_learnt:
            return self._backward_regularised(draw.outer)
        losses = self._domain_losses(draw.outer)
        losses.sum().backward()
        return {"domain_loss": losses.detach().mean()}

    def backward_phi(self, draw: Draw) -> Logged:
        """Accumulate the gradient of φ: that of CE_b at the head of domain a after l steps."""
        batch = draw.outer
        with _statistics_kept(self.model), torch.no_grad():
            z = features_and_logits(self.model, batch.x).features
        ids = source_ids(batch.domain, self._given.sources)
        a, b = torch.randperm(len(self.heads))[:2].tolist()
        head = unrolled(
            self._head(a),
            self.phi,
            (z[ids == a], batch.y[ids == a]),
            steps=self._config.inner_steps,
            lr=self._config.inner_lr,
        )
        loss = F.cross_entropy(head.logits(z[ids == b]), batch.y[ids == b])
        # φ's optimiser runs at β, so that α₃ goes into the gradient.
        (self._config.phi_lr * loss).backward()
        return {"loss": loss.detach(), "phi": self.phi.detach().mean()}

    def after_step(self) -> None:
        """Keep φ from below 0, if that is asked for."""
        if self._config.is_nonnegative and not self.has_learnt:
            with torch.no_grad():
                self.phi.clamp_(min=0)

    def _domain_losses(self, batch: Samples) -> Float[Tensor, " k"]:
        """Return CE_k of the shared features and the head of each domain."""
        z = features_and_logits(self.model, batch.x).features
        ids = source_ids(batch.domain, self._given.sources)
        return torch.stack(
            [
                F.cross_entropy(self._head(int(k)).logits(z[ids == k]), batch.y[ids == k])
                for k in ids.unique()
            ]
        )

    def _backward_regularised(self, batch: Samples) -> Logged:
        """Accumulate the gradient of CE + R_φ(w), φ fixed."""
        mean = cross_entropy(self.model, batch).mean()
        penalty = weighted_l1(self.phi.detach(), head_of(self.model).weight)
        loss = mean + penalty
        loss.backward()
        return {"loss": loss.detach(), "cross_entropy": mean.detach(), "penalty": penalty.detach()}

    def _head(self, domain: int) -> LinearHead:
        head = self.heads[domain]
        assert isinstance(head, nn.Linear)
        return LinearHead(head.weight, head.bias)


@contextmanager
def _statistics_kept(model: nn.Module) -> Iterator[None]:
    """Let batch norm use the statistics of a batch without its running ones moving."""
    kept = [value.clone() for value in model.buffers()]
    try:
        yield
    finally:
        for value, old in zip(model.buffers(), kept, strict=True):
            value.copy_(old)
