"""One run: what it was made of, and what came out."""

from statistics import fmean
from typing import Literal

from pydantic import JsonValue

from cicf.core.frozen import Frozen
from cicf.core.pace import Pace

Parameters = Literal["theta", "theta_dagger"]
"""Where training stands, and where its virtual step leads."""
Selection = Literal["last", "best"]
"""After the last epoch, or after the one with the best source validation."""
Choice = Literal["last", "best", "oracle"]
"""How an epoch is chosen; `oracle` looks at the target, and is never a headline."""


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


class Protocol(Frozen):
    """Says which images a number belongs to; numbers of different protocols do not compare."""

    name: Literal["leave-one-domain-out", "single-source", "hold-out"]
    """Train on all domains but one, on one alone, or on images of all."""
    split: str
    """How the images of the sources were split into training and validation."""
    part: Literal[
        "all images", "official test part", "official test part, elsewhere all images", "none"
    ]
    """What of the tested domains is scored."""
    tested: tuple[str, ...]
    """The domains that are scored at the end."""

    @property
    def kind(self) -> str:
        """Return the protocol in words, without the domains: what runs of one row share."""
        places = {
            "leave-one-domain-out": "of the target",
            "single-source": "of the other domains",
            "hold-out": "of all domains",
        }
        scored = f"{self.part} {places[self.name]}" if self.tested else "source validation only"
        return f"{self.name}; sources split by {self.split}; {scored}"


class Setup(Frozen):
    """Holds what a run found before its first step."""

    classes: tuple[str, ...]
    sources: dict[str, int]
    """Training images by domain."""
    validation: dict[str, int]
    """Source-validation images by domain."""
    protocol: Protocol
    fingerprint: str
    """Names, labels, split and contents of all images, as one hash."""
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
    threads: int | None = None
    """With how many threads the CPU computes; another number changes last bits."""
    pace: Pace | None = None
    """How a step goes through its batch, as found at the first; another changes last bits."""
    notes: tuple[str, ...]
    """What a user should know about how the above was found."""
    versions: dict[str, str]

    def paced(self, pace: Pace, step: int) -> "Setup":
        """Return this with how steps go through their batches, as of a step."""
        notes = self.notes
        if pace.retries:
            notes += (
                f"memory ran out in step {step}, so that steps take {pace} from there on; another "
                "run of this would differ in its last bits",
            )
        return self.model_copy(update={"pace": pace, "notes": notes})


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
    epochs: tuple[Scored, ...] = ()
    """Every epoch, where their networks were kept; scored on the target after training."""
    seconds: dict[str, float]
    """Time by phase, over all parts of an interrupted run; what a method says of its steps, too."""
    peak_memory: int | None = None
    """Bytes that training took at most, above what there was before it; None where unknown."""

    def scored(self, at: Choice) -> Scored:
        """Return an epoch: the last, the best by source validation, or the best on the target."""
        if at == "last":
            return self.last
        if at == "best":
            return self.best
        if not self.epochs or self.last.test is None:
            raise LookupError(f"run {self.run_id} kept no epochs to choose from by the target")
        return max(self.epochs, key=lambda each: self.percent(each.test, self.deploy))

    def accuracy(
        self, part: Literal["validation", "test"] = "test", *, at: Choice = "last"
    ) -> float:
        """Return the accuracy of the deployed network in percent, as `percent` has it."""
        scored = self.scored(at)
        found = scored.validation if part == "validation" else scored.test
        return self.percent(found, self.deploy)

    def percent(self, found: Evaluation | None, parameters: Parameters) -> float:
        """Return an accuracy: of all images together, of several targets the mean over them."""
        if found is None:
            raise LookupError(f"run {self.run_id} held no domain out, so it has no test accuracy")
        scores = found.of(parameters)
        if self.setup.protocol.name == "single-source":
            return fmean(score.percent for score in scores.values())
        return pooled(scores).percent
