"""How a step goes through its batch: in how large pieces, and whether it keeps their graphs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Says how a step goes through its batch; it changes time, memory and last bits only."""

    chunk: int | None = None
    """Samples that a pass takes at a time; None for all of them."""
    keeps_graphs: bool = True
    """Whether pass 3 walks the graphs of pass 1, or computes them again."""
    retries: int = 0
    """How often memory ran out and a step was taken again; above 0, bits cannot be repeated."""

    @property
    def outer_chunk(self) -> int | None:
        """Return how many samples of the outer batch a pass takes at a time.

        Half as many as of the inner batch, since the graph of an inner piece lies beside them.
        """
        return None if self.chunk is None else -(-self.chunk // 2)

    def __str__(self) -> str:
        pieces = "the whole batch at once" if self.chunk is None else f"{self.chunk} at a time"
        return f"{pieces}, graphs {'kept' if self.keeps_graphs else 'computed again'}"

    def halved(self, size: int) -> "Pace":
        """Return a pace that takes less memory for a batch of this size."""
        chunk = max(1, min(self.chunk or size, size) // 2)
        return Pace(chunk, keeps_graphs=False, retries=self.retries + 1)
