"""What runs leave behind, readable without torch."""

from cicf.results.folder import RunFolder
from cicf.results.record import Evaluation, Protocol, Record, Score, Scored, Setup

__all__ = ["Evaluation", "Protocol", "Record", "RunFolder", "Score", "Scored", "Setup"]
