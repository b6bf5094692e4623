"""MatchDG: first find which images of other domains match, then let their logits agree."""

from typing import ClassVar, Literal, TypedDict

import torch
import torch.nn.functional as F
from jaxtyping import Shaped
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor

from cicf.core.draw import Draw, Samples
from cicf.core.modes import evaluating
from cicf.data.blocks import Groups
from cicf.data.loader import Evaluated, batches
from cicf.data.matching import at_random, matched_places, nearest_by
from cicf.data.sampling import Sampling
from cicf.maths.contrast import match_contrast, match_distance
from cicf.method import About, Given, Logged, Method, MethodConfig, Phase
from cicf.models.taps import features_and_logits

_READ = 128


class MatchDgConfig(MethodConfig):
    """Learns which images of other domains match, then lets the logits of matched ones agree."""

    about: ClassVar[About] = About(
        reference="Mahajan et al., ICML 2021", needs_domains=True, norm_updates=(2, 0), cost=3.9
    )
    name: Literal["matchdg"] = "matchdg"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """There is no virtual step, so θ is the model."""
    matching_epochs: PositiveInt = 10
    """Epochs of the first phase, which are not part of `epochs`; 50 [code], 10 is ours for cost."""
    rematches_every: PositiveInt = 5
    """Epochs of the first phase from one matching to the next; 5 [code]."""
    tau: PositiveFloat = 0.05
    """τ, the temperature of the contrast; 0.05 [code]."""
    weight: NonNegativeFloat = 1.0
    """λ of the distance between matched logits; 1 is what two of four targets of PACS have with
    ResNet-18, the others 0.5 and 5 [code]."""

    def build(self, given: Given) -> "MatchDg":
        """Return MatchDG on this model."""
        return MatchDg(self, given)


class _State(TypedDict):
    epoch: int
    places: Tensor


class MatchDg(Method):
    """Draws a random batch and a batch of matched groups, whose matches it keeps."""

    least_domains = 2

    def __init__(self, config: MatchDgConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._epochs = config, given.epochs
        self._members = len(given.sources)
        self._epoch = 0
        # Until there are matches, as many groups of as many images: a step costs what it will.
        rows = max(1, given.num_images // self._members)
        places = torch.arange(rows * self._members) % given.num_images
        self._groups = Groups(places.view(rows, self._members))

    @property
    def sampling(self) -> Sampling:  # type: ignore[override]  # it changes with the matches
        """Return what is drawn: random images, and groups as they match now."""
        return Sampling(inner="groups", groups=self._groups)

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Return the search for matches, and the training that uses them."""
        return (
            Phase("matching", self._config.matching_epochs),
            Phase("training", self._epochs, starts_fresh=True),
        )

    @property
    def is_matching(self) -> bool:
        """Tell whether this is the first phase."""
        return self._epoch < self._config.matching_epochs

    @property
    def ramp(self) -> float:
        """Return (e + 1) / (E + 1), with e the epoch within its phase and E the phase's epochs."""
        if self.is_matching:
            return (self._epoch + 1) / (self._config.matching_epochs + 1)
        return (self._epoch - self._config.matching_epochs + 1) / (self._epochs + 1)

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the phase's loss."""
        return self._contrast(draw) if self.is_matching else self._agreement(draw)

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Match at random at first, later by features; the second phase keeps what it begins with.

        It begins before the network goes back to its first weights, so that the matches are those
        of the first phase.
        """
        self._epoch = epoch
        if epoch == 0:
            self._match(images, by_features=False)
        elif epoch == self._config.matching_epochs or (
            self.is_matching and epoch % self._config.rematches_every == 0
        ):
            self._match(images, by_features=True)

    def get_extra_state(self) -> _State:
        """Return the epoch, which tells the phase, and the matches."""
        return {"epoch": self._epoch, "places": self._groups.places}

    def set_extra_state(self, state: _State) -> None:
        """Go on with these matches."""
        self._epoch, self._groups = state["epoch"], Groups(state["places"])

    def _match(self, images: Evaluated, *, by_features: bool) -> None:
        features, y, domain = [], [], []
        like = next(self.model.parameters())
        with evaluating(self.model), torch.no_grad():
            for batch in batches(images, size=_READ):
                y.append(batch.y)
                domain.append(batch.domain)
                if by_features:
                    seen = features_and_logits(self.model, batch.x.to(like))
                    features.append(seen.features.cpu())
        choose = nearest_by(torch.cat(features)) if by_features else at_random
        self._groups = Groups(matched_places(torch.cat(y), torch.cat(domain), choose))

    def _contrast(self, draw: Draw) -> Logged:
        """Accumulate the gradient of the ramp times the contrast of matched features."""
        batch = self._matched(draw)
        features, _ = features_and_logits(self.model, batch.x)
        y, domain = self._grouped(batch.y), self._grouped(batch.domain)
        contrast = match_contrast(self._grouped(features), y, domain, tau=self._config.tau)
        loss = self.ramp * contrast
        loss.backward()
        return {"loss": loss.detach(), "contrast": contrast.detach()}

    def _agreement(self, draw: Draw) -> Logged:
        """Accumulate that of CE(random) + CE(matched) + λ ramp ‖logits_i − logits_j‖²."""
        usual = F.cross_entropy(self.model(draw.outer.x), draw.outer.y)
        # By itself, so that the graphs of the two batches are not held at the same time.
        usual.backward()
        batch = self._matched(draw)
        logits = self.model(batch.x)
        distance = match_distance(self._grouped(logits), self._grouped(batch.domain))
        matched = F.cross_entropy(logits, batch.y) + self._config.weight * self.ramp * distance
        matched.backward()
        return {"loss": (usual + matched).detach(), "distance": distance.detach()}

    def _matched(self, draw: Draw) -> Samples:
        """Return whole groups: those drawn, or, to measure a step, other images in their place."""
        batch = draw.outer if draw.inner is None else draw.inner
        whole = len(batch.y) // self._members * self._members
        return Samples(*(field[:whole] for field in batch))

    def _grouped(self, values: Shaped[Tensor, "m ..."]) -> Shaped[Tensor, "g d ..."]:
        grouped: Tensor = values.unflatten(0, (-1, self._members))
        return grouped
