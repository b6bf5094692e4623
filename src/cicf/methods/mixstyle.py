"""MixStyle: maps within the network take on styles between their own and that of another image."""

from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat
from torch import Tensor

from cicf.core import ConfigError
from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.maths.style import with_mixed_styles
from cicf.method import About, Given, LossMethod, MethodConfig, cross_entropy
from cicf.models.maps import check_maps, modules_with_maps
from cicf.models.split import SplitModel
from cicf.models.taps import Change, changed, chosen_layers


class MixStyleConfig(MethodConfig):
    """Mixes the channel means and deviations of maps between the images of a batch."""

    about: ClassVar[About] = About(reference="Zhou et al., ICLR 2021", cost=1.1)
    name: Literal["mixstyle"] = "mixstyle"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """There is no virtual step, so θ is the model."""
    variant: Literal["random", "crossdomain"] = "random"
    """`random`: the partner is any image of the batch; `crossdomain`: one of another domain, in
    batches of two domains. Both are published; `random` because it needs no domains [code]."""
    p: float = Field(default=0.5, ge=0, le=1)
    """Probability that styles are mixed, one coin per forward and layer [code]."""
    alpha: PositiveFloat = 0.1
    """λ ~ Beta(alpha, alpha), the share of an image's own style, one per image and layer [code]."""
    layers: tuple[str, ...] = ()
    """Modules after which styles are mixed. Empty: where five stages or more put out maps, all of
    them but the first and the last (ResNet: layer1 to layer3 [code]; AlexNet: the second to the
    fourth, ours), else their first half (Digits CNN: block1 and block2, ours)."""

    def build(self, given: Given) -> "MixStyle":
        """Return MixStyle on this model."""
        return MixStyle(self, given)


class MixStyle(LossMethod):
    """Minimises the cross-entropy of a network whose maps have mixed styles."""

    def __init__(self, config: MixStyleConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config = config
        self.sampling = Sampling()
        if config.variant == "crossdomain":
            if len(given.sources) < 2:
                raise ConfigError(
                    "method.variant='crossdomain' takes styles from another domain, but there is "
                    "one source domain; add a domain, or use method.variant='random'"
                )
            self.sampling = Sampling(outer="pairs")
        self.layers = mixed_layers(given.model, config.layers, given.image_size)

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        """Return the mean cross-entropy; in evaluation mode nothing is mixed."""
        changes: dict[str, Change] = {}
        if model.training:
            changes = {name: lambda z: self._mixed(z, batch.domain) for name in self.layers}
        with changed(model, changes):
            return cross_entropy(model, batch).mean()

    def _mixed(
        self, z: Float[Tensor, "n c h w"], domain: Int[Tensor, " n"]
    ) -> Float[Tensor, "n c h w"]:
        # On the CPU, so that the same numbers come on every device, and come again in a replay.
        if float(torch.rand(())) >= self._config.p:
            return z
        share = torch.distributions.Beta(self._config.alpha, self._config.alpha).sample((len(z),))
        if self._config.variant == "random":
            partner = torch.randperm(len(z))
        else:
            partner = partners_of_other_domains(domain.cpu())
        return with_mixed_styles(z, partner.to(z.device), share.to(z))


def partners_of_other_domains(domain: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """Return a partner for each image, drawn from the images of all other domains.

    The images of a domain get different partners for as long as there are such, then again from the
    beginning; of two halves, each is matched one to one with the other. Where all images are of one
    domain, each is its own partner.
    """
    partner = torch.arange(len(domain))
    for each in domain.unique():
        own, others = (domain == each).nonzero()[:, 0], (domain != each).nonzero()[:, 0]
        if len(others):
            drawn = others[torch.randperm(len(others))]
            partner[own] = drawn[torch.arange(len(own)) % len(drawn)]
    return partner


def mixed_layers(model: SplitModel, given: tuple[str, ...], image_size: int) -> tuple[str, ...]:
    """Return the modules after which styles are mixed: those given, or some between the stages."""
    maps = modules_with_maps(model, image_size)
    known = [number for number, name in enumerate(model.stages) if name in maps]
    some = known[1:-1] if len(known) >= 5 else known[: (len(known) + 1) // 2]
    if model.stages and not some and not given:
        raise ConfigError(
            "no stage of this network puts out a map whose style could be mixed; name modules that "
            f"do: method.layers='[\"...\"]' with some of {', '.join(maps[:8])}"
        )
    layers = chosen_layers(model, given, option="method.layers", stages=some)
    check_maps(layers, maps, option="method.layers")
    return layers
