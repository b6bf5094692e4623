"""RSC: what speaks for the label most is set to zero, so that the rest has to learn it, too."""

import math
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.draw import Samples
from cicf.core.modes import evaluating
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.method import About, Given, LossMethod, MethodConfig
from cicf.models.maps import check_maps, is_bottleneck, modules_with_maps
from cicf.models.split import SplitModel
from cicf.models.taps import changed, features_and_logits, head_of

MARGIN = 1e-4
"""What the probability of the label has to fall by, at least, for a mask to count [code]."""
Tail = Callable[[Float[Tensor, "n c h w"]], Float[Tensor, "n classes"]]
"""What the network makes of maps: the logits."""


class RscConfig(MethodConfig):
    """Sets to zero what speaks for the label most, in the images where this hurts most."""

    about: ClassVar[About] = About(reference="Huang et al., ECCV 2020", cost=1.0)
    name: Literal["rsc"] = "rsc"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """There is no virtual step, so θ is the model."""
    variant: Literal["map", "pooled"] = "map"
    """`map`: places or channels of the last map, as in the authors' code; `pooled`: entries of what
    enters the last linear layer, as in DomainBed [code]."""
    layer: str | None = None
    """With `map`, the module whose map is masked; None for the last map of two places or more,
    on a ResNet layer4 [code]."""
    positions: float = Field(default=1 / 3, gt=0, lt=1)
    """With `map`, the part of the places that is set to zero, when the coin says places [code]."""
    channels: float = Field(default=1 / 3.2, gt=0, lt=1)
    """With `map`, the part of the channels that is set to zero, when it says channels [code]."""
    share: float = Field(default=0.3, ge=0, le=1)
    """With `map`, the part of a batch that is masked in the first epochs [code]."""
    share_growth: NonNegativeFloat = 0.2
    """With `map`, what is added to the share again and again, up to 1 [code]."""
    share_every: PositiveInt = 10
    """With `map`, epochs from one such addition to the next [code]."""
    features: float = Field(default=1 / 3, gt=0, lt=1)
    """With `pooled`, the part of the features that is set to zero; f in DomainBed [code]."""
    samples: float = Field(default=1 / 3, gt=0, lt=1)
    """With `pooled`, the part of a batch that is masked; b in DomainBed [code]."""

    def share_at(self, epoch: int) -> float:
        """Return the part of a batch that is masked in an epoch, counted from 0."""
        return min(1.0, self.share + self.share_growth * (epoch // self.share_every))

    def build(self, given: Given) -> "Rsc":
        """Return RSC on this model."""
        return Rsc(self, given)


class Rsc(LossMethod):
    """Minimises the cross-entropy of masked representations."""

    sampling = Sampling()

    def __init__(self, config: RscConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config = config
        self._epoch = 0
        if config.variant == "map":
            self.layer = masked_layer(given.model, config.layer, given.image_size)
            self._is_bottleneck = is_bottleneck(given.model, self.layer, given.image_size)

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Move on in the curriculum."""
        del images
        self._epoch = epoch

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        """Return the mean cross-entropy of the batch, a part of it masked."""
        if self._config.variant == "pooled":
            return self._loss_of_features(model, batch)
        return self._loss_of_maps(model, batch)

    def get_extra_state(self) -> dict[str, int]:
        """Return the epoch, on which the share depends."""
        return {"epoch": self._epoch}

    def set_extra_state(self, state: dict[str, int]) -> None:
        """Go on in an epoch."""
        self._epoch = state["epoch"]

    def _loss_of_maps(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        by_position = float(torch.rand(())) < 0.5
        # If nothing goes past the map, its tail can be had by a forward of one image.
        few = batch.x[:1] if self._is_bottleneck else batch.x
        held: list[Tensor] = []

        def tail(z: Tensor) -> Tensor:
            held.append(z)
            try:
                with evaluating(model):
                    logits: Tensor = model.network(few)
            finally:
                held.pop()
            return logits

        def masked(z: Tensor) -> Tensor:
            if held:  # within the tail
                return held[-1]
            return z * self._map_mask(z.detach(), batch.y, tail, by_position=by_position)

        with changed(model, {self.layer: masked}):
            return F.cross_entropy(model(batch.x), batch.y)

    def _map_mask(
        self, z: Tensor, y: Tensor, tail: Tail, *, by_position: bool
    ) -> Bool[Tensor, "n _ _ _"]:
        part = self._config.positions if by_position else self._config.channels
        mask, before = kept_of_map(z, y, tail, by_position=by_position, part=part)
        with torch.no_grad():
            after = true_probability(tail(z * mask), y)
        is_masked = hurt_most(before - after, self._config.share_at(self._epoch))
        return mask | ~is_masked[:, None, None, None]

    def _loss_of_features(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        features, logits = features_and_logits(model, batch.x)
        head = head_of(model)
        # The gradient of a logit with respect to what enters a linear layer is a row of it.
        mask = below_quantile(head.weight.detach()[batch.y], 1 - self._config.features)
        with torch.no_grad():
            after = true_probability(head(features * mask), batch.y)
            change = true_probability(logits, batch.y) - after
        is_spared = below_quantile(change, 1 - self._config.samples)
        return F.cross_entropy(head(features * (mask | is_spared[:, None])), batch.y)


def masked_layer(model: SplitModel, given: str | None, image_size: int) -> str:
    """Return the module whose map is masked: the one given, or the last that has one."""
    maps = modules_with_maps(model, image_size)
    if not maps:
        raise ConfigError(
            "this network puts out no map of two places or more that could be masked; use "
            "method.variant='pooled', or another network"
        )
    layer = given or maps[-1]
    check_maps([layer], maps, option="method.layer")
    return layer


def kept_of_map(
    z: Float[Tensor, "n c h w"], y: Int[Tensor, " n"], tail: Tail, *, by_position: bool, part: float
) -> tuple[Bool[Tensor, "n _ _ _"], Float[Tensor, " n"]]:
    """Return what a mask keeps of each map, places or channels, and p(y) before it is applied.

    A channel's weight is the mean over places of the derivative of the label's logit; the score of
    a place is the sum over channels of weight times value. The highest ⌈part · number⌉ go.
    """
    with torch.enable_grad():
        leaf = z.detach().requires_grad_()
        # A copy, since what follows may work in place.
        logits = tail(leaf.clone())
        (slope,) = torch.autograd.grad(logits.gather(1, y[:, None]).sum(), leaf)
    weight = slope.mean((2, 3))
    if not by_position:
        return ~highest(weight, part)[:, :, None, None], true_probability(logits.detach(), y)
    score = (weight[:, :, None, None] * z).sum(1)
    is_high = highest(score.flatten(1), part).reshape(score.shape)
    return ~is_high[:, None], true_probability(logits.detach(), y)


def highest(values: Float[Tensor, "n k"], part: float) -> Bool[Tensor, "n k"]:
    """Tell which are the ⌈part · k⌉ highest of each row; fewer where the next one is as high.

    One of a row is always left.
    """
    k = values.shape[1]
    count = min(math.ceil(part * k), k - 1)
    return values > values.sort(1, descending=True).values[:, count, None]


def hurt_most(fall: Float[Tensor, " n"], share: float) -> Bool[Tensor, " n"]:
    """Tell which samples are in the share whose probability falls most, by more than the margin."""
    change = (fall - MARGIN).clamp(min=0)
    count = round(len(change) * share)
    if count >= len(change):
        return change > 0
    return change > change.sort(descending=True).values[count]


def true_probability(
    logits: Float[Tensor, "n classes"], y: Int[Tensor, " n"]
) -> Float[Tensor, " n"]:
    """Return the probability that each sample's own label is given."""
    return logits.softmax(1).gather(1, y[:, None])[:, 0]


def below_quantile(values: Float[Tensor, "*n k"], q: float) -> Bool[Tensor, "*n k"]:
    """Tell which values are below the quantile of their row, linear between two of them."""
    return values < values.quantile(q, dim=-1, keepdim=True)
