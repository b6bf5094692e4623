"""The two batches of a step, cut into the pieces that its passes go through."""

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.batch import Batch, batch_size, to_device
from cicf.core.pace import Pace
from cicf.core.ranks import Ranks
from cicf.intervention import pieces
from cicf.intervention.objective import Objective
from cicf.maths.shares import Side


@dataclass(frozen=True, slots=True)
class Sides:
    """Makes the sides of a step; `curvature` is the part of the inner batch that pass 3 takes."""

    objective: Objective
    order: int
    curvature: float
    pace: Pace

    def inner(
        self,
        batch: Batch,
        *,
        strata: Int[Tensor, " m"] | None,
        ranks: Ranks,
        is_moved: bool,
    ) -> Side:
        """Return the inner batch; where nothing moves, there is no part of it to draw."""
        is_part = self.order == 2 and self.curvature < 1 and is_moved
        option = self._sample_option(is_part=is_part)
        if is_part:
            cut = pieces.stratified(batch, self.pace.chunk, strata=strata, part=self.curvature)
        else:
            cut = pieces.whole(batch, self.pace.chunk)
        total = ranks.total(batch_size(batch), self.device)
        return Side(self.objective.inner_loss(is_curved=self.order == 2), cut, total, option)

    def outer(
        self,
        batch: Batch,
        *,
        written: dict[Tensor, Tensor] | None,
        scale: float | Tensor,
        ranks: Ranks,
    ) -> Side:
        """Return the outer batch, whole where running statistics are trained on it."""
        chunk = None if self.objective.trains_statistics() else self.pace.outer_chunk
        option = "" if chunk is None else f"chunk={self.pace.chunk}"
        total = ranks.total(batch_size(batch), self.device)
        loss = self.objective.outer_loss(written=written, scale=scale)
        originals = [p for p in self.objective.parameters() if p.requires_grad]
        return Side(loss, pieces.whole(batch, chunk), total, option, originals)

    def summed(self, batch: Batch) -> Side:
        """Return an inner side whose loss is the sum over its samples, wherever the batch lies."""
        option = self._sample_option(is_part=False)
        cut = pieces.whole(to_device(batch, self.device), self.pace.chunk)
        return Side(self.objective.inner_loss(is_curved=False), cut, 1, option)

    @property
    def device(self) -> torch.device:
        """Return where the parameters are."""
        return next(self.objective.parameters()).device

    def _sample_option(self, *, is_part: bool) -> str:
        """Return the option that needs independent samples, or refuse it where they are not."""
        options = [f"curvature={self.curvature}"] * is_part
        options += [] if self.pace.chunk is None else [f"chunk={self.pace.chunk}"]
        option = " and ".join(options)
        if option and self.objective.couples_samples(is_outer=False):
            raise ConfigError(
                f"{option} takes the batch apart, but batch norm by batch statistics needs it "
                "whole; use batch_norm='running' or 'frozen', or leave the option out"
            )
        return option
