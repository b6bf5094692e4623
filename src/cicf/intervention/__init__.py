"""The CICF step as a product of its own."""

from cicf.core.pace import Pace
from cicf.intervention.alpha import AlphaCurve, suggest_alpha
from cicf.intervention.losses import cross_entropy_per_sample
from cicf.intervention.step import Intervention
from cicf.intervention.terms import Terms

__all__ = [
    "AlphaCurve",
    "Intervention",
    "Pace",
    "Terms",
    "cross_entropy_per_sample",
    "suggest_alpha",
]
