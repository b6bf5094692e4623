"""What runs leave behind, readable without torch."""

from cicf.results.folder import RunFolder
from cicf.results.record import Evaluation, Record, Score, Scored, Setup

__all__ = ["Evaluation", "Record", "RunFolder", "Score", "Scored", "Setup"]
