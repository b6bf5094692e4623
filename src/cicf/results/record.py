"""One run: what it was made of, and what came out."""

from typing import Literal

from pydantic import JsonValue

from cicf.core.frozen import Frozen

Parameters = Literal["theta", "theta_dagger"]
"""Where training stands, and where its virtual step leads."""
Selection = Literal["last", "best"]
"""After the last epoch, or after the one with the best source validation."""


class Score(Frozen):
    """Counts the images that were classified rightly."""

    correct: int
    total: int

    @property
    def percent(self) -> float:
        """Return the accuracy in percent."""
        return 100 * self.correct / self.total

    def __add__(self, other: "Score") -> "Score":
        return Score(correct=self.correct + other.correct, total=self.total + other.total)


Scores = dict[str, Score]
"""Scores by domain."""


def pooled(scores: Scores) -> Score:
    """Return the score of all images together."""
    return sum(scores.values(), Score(correct=0, total=0))


class Evaluation(Frozen):
    """Holds the scores of θ and of θ† on one set of images; methods without θ† have one of them."""

    theta: Scores
    theta_dagger: Scores | None = None

    def of(self, parameters: Parameters) -> Scores:
        """Return the scores of θ or of θ†."""
        scores = self.theta if parameters == "theta" else self.theta_dagger
        assert scores is not None
        return scores


class Scored(Frozen):
    """Holds what the networks of an epoch score on source validation and on the target."""

    epoch: int
    validation: Evaluation
    test: Evaluation | None = None


class Setup(Frozen):
    """Holds what a run found before its first step."""

    classes: tuple[str, ...]
    sources: dict[str, int]
    """Training images by domain."""
    validation: dict[str, int]
    """Source-validation images by domain."""
    target: str | None
    fingerprint: str
    """Names and contents of all images, as one hash."""
    inner_size: int | None
    """M; None for a method without an inner batch."""
    outer_size: int
    """M^l."""
    steps_per_epoch: int
    cut: str
    """Where Z is."""
    image_size: int
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    notes: tuple[str, ...]
    """What a user should know about how the above was found."""
    versions: dict[str, str]


class Record(Frozen):
    """Holds one finished run."""

    run_id: str
    config: dict[str, JsonValue]
    setup: Setup
    deploy: Parameters
    last: Scored
    """After the last epoch: the headline."""
    best: Scored
    """After the epoch with the best source validation."""
    seconds: dict[str, float]
    """Time by phase, over all parts of an interrupted run."""

    def accuracy(
        self, part: Literal["validation", "test"] = "test", *, at: Selection = "last"
    ) -> float:
        """Return the accuracy of the deployed network in percent, all images together."""
        scored = self.last if at == "last" else self.best
        found = scored.validation if part == "validation" else scored.test
        if found is None:
            raise LookupError(f"run {self.run_id} held no domain out, so it has no test accuracy")
        return pooled(found.of(self.deploy)).percent
