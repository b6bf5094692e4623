"""JiGen: beside the class, the network learns in which order the tiles of an image were put."""

from functools import cache
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat
from torch import Tensor, nn

from cicf.core import ConfigError
from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.maths.tiles import GRID, far_permutations, shuffled
from cicf.method import About, Given, LossMethod, MethodConfig
from cicf.models.split import SplitModel
from cicf.models.taps import features_and_logits, head_of


class JigenConfig(MethodConfig):
    """Solves puzzles of 3x3 tiles beside the classification, by a second head."""

    about: ClassVar[About] = About(
        reference="Carlucci et al., CVPR 2019", extra_networks="a linear head", cost=1.0
    )
    name: Literal["jigen"] = "jigen"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """There is no virtual step, so θ is the model."""
    weight: NonNegativeFloat = 0.7
    """w, what the cross-entropy of the order weighs beside that of the class; ResNet-18 on PACS
    [code]; 0.5 for VLCS, by the author's memory [code]."""
    ordered: float = Field(default=0.9, ge=0, le=1)
    """β, the probability that an image stays in order; ResNet-18 on PACS [code]; 0.8 for VLCS, by
    the author's memory [code]."""
    permutations: int = Field(default=30, ge=1, le=1000)
    """P, the number of orders beside the right one [code]."""
    only_ordered: bool = False
    """Whether the class is learnt from images in order only, the "sane" ones [code]."""

    def build(self, given: Given) -> "Jigen":
        """Return JiGen on this model."""
        return Jigen(self, given)


class Jigen(LossMethod):
    """Minimises CE(class) + w · CE(order)."""

    sampling = Sampling()
    permutations: Int[Tensor, "orders 9"]

    def __init__(self, config: JigenConfig, given: Given) -> None:
        super().__init__(given.model)
        if given.image_size < GRID:
            raise ConfigError(
                f"jigen cuts images into {GRID}x{GRID} tiles, but they have {given.image_size} "
                f"pixels a side; use a data.image_size of at least {GRID}"
            )
        self._config = config
        self.head = nn.Linear(head_of(given.model).in_features, config.permutations + 1)
        found = permutations(config.permutations + 1)
        self.register_buffer("permutations", found.clone(), persistent=False)

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, " m"] | Float[Tensor, ""]:
        """Return the loss of each sample, or of the batch where some have no part in one term."""
        order = self._orders(len(batch.y)).to(batch.y.device)
        features, logits = features_and_logits(model, shuffled(batch.x, self.permutations[order]))
        of_class = F.cross_entropy(logits, batch.y, reduction="none")
        of_order = F.cross_entropy(self.head(features), order, reduction="none")
        if not self._config.only_ordered:
            return of_class + self._config.weight * of_order
        # Without an image in order there is no such term; the authors' code has NaN.
        is_ordered = (order == 0).to(of_class)
        of_class = (of_class * is_ordered).sum() / is_ordered.sum().clamp(min=1)
        return of_class + self._config.weight * of_order.mean()

    def _orders(self, count: int) -> Int[Tensor, " m"]:
        """Return the order of each image, 0 for the right one."""
        # On the CPU, so that the same numbers come on every device, and come again in a replay.
        is_ordered = torch.rand(count) < self._config.ordered
        order = torch.randint(1, self._config.permutations + 1, (count,))
        return order.masked_fill(is_ordered, 0)


@cache
def permutations(count: int) -> Int[Tensor, "count 9"]:
    """Return orders of nine tiles that are far from each other, the right one first."""
    return far_permutations(count)
