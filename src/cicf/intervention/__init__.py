"""The CICF step as a product of its own."""

from cicf.intervention.alpha import AlphaCurve, suggest_alpha
from cicf.intervention.step import Intervention, cross_entropy_per_sample
from cicf.intervention.terms import Terms

__all__ = ["AlphaCurve", "Intervention", "Terms", "cross_entropy_per_sample", "suggest_alpha"]
