"""The loss that a step minimises unless it is given another."""

from collections.abc import Sequence

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from cicf.core import DataError
from cicf.core.batch import Batch


def cross_entropy_per_sample(model: nn.Module, batch: Batch) -> Float[Tensor, " m"]:
    """Return the cross-entropy of each sample of a batch (x, y)."""
    if not isinstance(batch, Sequence) or len(batch) != 2:
        raise DataError(
            "the default loss takes a batch (x, y); for a batch of another form pass "
            "loss=lambda model, batch: ... with one value per sample"
        )
    x, y = batch
    return F.cross_entropy(model(x), y, reduction="none")
