"""Grids of runs, and what executes them."""

from cicf.bench.engine import Ended, Moved, Waiting, execute
from cicf.bench.estimate import Estimate, estimate
from cicf.bench.grid import Grid, Job, Variant, make_jobs

__all__ = [
    "Ended",
    "Estimate",
    "Grid",
    "Job",
    "Moved",
    "Variant",
    "Waiting",
    "estimate",
    "execute",
    "make_jobs",
]
