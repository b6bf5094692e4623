"""A batch in the pieces that the passes go through."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.core import DataError
from cicf.core.batch import Batch, batch_size, chunks, take
from cicf.maths.shares import Piece
from cicf.maths.stratified import stratified_part


def whole(batch: Batch, chunk: int | None, *, is_curved: bool = True) -> list[Piece]:
    """Return the batch in pieces of at most `chunk` samples, or in one."""
    if chunk is None:
        return [Piece(batch, batch_size(batch), is_curved)]
    return [Piece(piece, batch_size(piece), is_curved) for piece in chunks(batch, chunk)]


def stratified(
    batch: Batch, chunk: int | None, *, strata: Int[Tensor, " m"] | None, part: float
) -> list[Piece]:
    """Return the pieces of the curvature part, weighted, then those of the rest of the batch.

    The part is drawn from torch's own random state, as a dropout mask is.
    """
    size = batch_size(batch)
    if not (strata is None or isinstance(strata, Tensor)):
        raise DataError(
            f"strata is a {type(strata).__name__}, but must be the cluster of each inner sample: "
            "strata.cluster[index], with the index of the sample in the training set"
        )
    clusters = torch.zeros(size, dtype=torch.int64) if strata is None else strata.cpu()
    if len(clusters) != size:
        raise DataError(
            f"strata has {len(clusters)} entries for {size} inner samples; pass the cluster of each"
        )
    places, weights = stratified_part(clusters, part, torch.default_generator)
    is_rest = torch.ones(size, dtype=torch.bool)
    is_rest[places] = False
    pieces = _weighted(whole(take(batch, places), chunk), weights)
    if bool(is_rest.any()):
        pieces += whole(take(batch, is_rest.nonzero()[:, 0]), chunk, is_curved=False)
    return pieces


def _weighted(pieces: list[Piece], weights: Float[Tensor, " n"]) -> list[Piece]:
    cut = weights.split([piece.size for piece in pieces])
    return [
        Piece(piece.batch, piece.size, weights=share)
        for piece, share in zip(pieces, cut, strict=True)
    ]
