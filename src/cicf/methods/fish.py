"""Fish: a walk through the source domains, part of which is taken. Needs domain labels."""

from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat
from torch import Tensor

from cicf.core.draw import Draw, Samples
from cicf.data.sampling import Sampling
from cicf.method import About, Given, Logged, Method, MethodConfig, Turn, cross_entropy


class FishConfig(MethodConfig):
    """Walks through the domains, one step on each, and goes part of the way (gradient matching)."""

    about: ClassVar[About] = About(
        reference="Shi et al., ICLR 2022", needs_domains=True, norm_updates=(0, 1), cost=1.1
    )
    name: Literal["fish"] = "fish"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The walk is over when a step ends, so θ is the model."""
    epsilon: float = Field(default=0.5, gt=0, le=1)
    """ε, the part of the way to θ̃ that is taken; 0.5 in DomainBed [code]."""
    inner_lr: PositiveFloat = 1.0
    """The learning rate of the walk as a multiple of β; 1 in DomainBed [code]."""

    def build(self, given: Given) -> "Fish":
        """Return Fish on this model."""
        return Fish(self, given)


class Fish(Method):
    """Moves θ by ε (θ̃ − θ), where θ̃ is the end of a walk through all domains in random order.

    The network itself walks, while its old state is kept aside.
    """

    sampling = Sampling(outer="domains")
    least_domains = 2

    def __init__(self, config: FishConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config = config

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the one update, which needs no optimiser."""
        return (Turn("walk", self.trained, self.backward, moves_itself=True),)

    def backward(self, draw: Draw) -> Logged:
        """Move θ and the statistics of batch norm; `.grad` stays as it is."""
        state = self._moving()
        before = [value.detach().clone() for value in state]
        walk = self._walk(_in_random_order(draw.outer))
        with torch.no_grad():
            for value, start in zip(state, before, strict=True):
                value.copy_(start.lerp(value, self._config.epsilon))
        terms: dict[str, float | Tensor] = {"loss": walk.loss}
        if walk.product is not None:
            terms["gradient_product"] = walk.product
        return terms

    def _walk(self, batches: Sequence[Samples]) -> "_Walk":
        """Take one step of plain SGD on each batch, one after the other."""
        lr, trained = self.lr * self._config.inner_lr, self.trained
        sums = [torch.zeros_like(parameter) for parameter in trained]
        losses, squares = [], []
        for batch in batches:
            loss = cross_entropy(self.model, batch).mean()
            found = torch.autograd.grad(loss, trained, allow_unused=True, materialize_grads=True)
            losses.append(loss.detach())
            squares.append(_square(found))
            with torch.no_grad():
                for parameter, total, slope in zip(trained, sums, found, strict=True):
                    parameter.sub_(slope, alpha=lr)
                    total.add_(slope)
        return _Walk(torch.stack(losses).mean(), _mean_product(sums, squares))

    def _moving(self) -> list[Tensor]:
        """Return what is interpolated: trained parameters, and statistics, which are no counts."""
        buffers = [value for value in self.model.buffers() if value.is_floating_point()]
        return [*self.trained, *buffers]


class _Walk(NamedTuple):
    """Holds the mean loss of the domains, each as it was reached, and how gradients agreed."""

    loss: Float[Tensor, ""]
    product: Float[Tensor, ""] | None


def _in_random_order(batch: Samples) -> list[Samples]:
    """Return the samples of each domain as a batch, the domains in random order."""
    domains = batch.domain.unique()
    order = torch.randperm(len(domains)).to(domains.device)
    places = [(batch.domain == domain).nonzero()[:, 0] for domain in domains[order]]
    return [Samples(*(field[each] for field in batch)) for each in places]


def _mean_product(
    sums: Sequence[Float[Tensor, "..."]], squares: Sequence[Float[Tensor, ""]]
) -> Float[Tensor, ""] | None:
    """Return the mean over pairs of g_i · g_j, from the sum of gradients and their squares."""
    count = len(squares)
    if count < 2:
        return None
    return (_square(sums) - torch.stack(list(squares)).sum()) / (count * (count - 1))


def _square(values: Sequence[Float[Tensor, "..."]]) -> Float[Tensor, ""]:
    return torch.stack([value.square().sum() for value in values]).sum()
