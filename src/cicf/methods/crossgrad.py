"""CrossGrad: images moved along the gradient of a domain classifier, and the other way round."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor

from cicf.core.draw import Samples
from cicf.data.sampling import Sampling
from cicf.method import About, Given, LossMethod, MethodConfig, source_ids
from cicf.models.split import SplitModel
from cicf.models.taps import copied_with_head


class CrossGradConfig(MethodConfig):
    """Trains on images that are moved to where a second network is less sure of their domain."""

    about: ClassVar[About] = About(
        reference="Shankar et al., ICLR 2018",
        needs_domains=True,
        extra_networks="a second network, for domains",
        norm_updates=(2, 0),
        cost=5.1,
    )
    name: Literal["crossgrad"] = "crossgrad"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The network for classes is the model."""
    epsilon: NonNegativeFloat = 1.0
    """ε, by which the clipped gradient is multiplied; Dassl has 1 [code], the authors 10 on images
    of 32x32 [code]."""
    a: float = Field(default=0.5, ge=0, le=1)
    """The share of the moved images in the loss [code]."""
    clip: PositiveFloat = 0.1
    """What a gradient by a pixel is clipped to, up and down [code]."""
    gradient_of: Literal["mean", "image"] = "mean"
    """What is differentiated by the pixels of an image: the `mean` loss of the batch, so that they
    move less in larger batches [code], or the loss of that `image` [mem]."""

    def build(self, given: Given) -> "CrossGrad":
        """Return CrossGrad on this model."""
        return CrossGrad(self, given)


class CrossGrad(LossMethod):
    """Trains the network and one for domains, each on images that the other moved."""

    sampling = Sampling()
    needs_domains = True

    def __init__(self, config: CrossGradConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._sources = config, given.sources
        self.domain_net = copied_with_head(given.model, len(given.sources))

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, " m"] | Float[Tensor, ""]:
        """Return L_l + L_m, each (1−a) CE(x) + a CE(x + ε δ) with the δ of the other network.

        They share no parameter, so that the gradient of the sum is that of each.
        """
        x, d = batch.x.detach().requires_grad_(), source_ids(batch.domain, self._sources)
        label_loss = F.cross_entropy(model(x), batch.y, reduction="none")
        domain_loss = F.cross_entropy(self.domain_net(x), d, reduction="none")
        x_d, x_y = self._moved(x, domain_loss), self._moved(x, label_loss)
        moved_label_loss = F.cross_entropy(model(x_d), batch.y, reduction="none")
        moved_domain_loss = F.cross_entropy(self.domain_net(x_y), d, reduction="none")
        a = self._config.a
        values = (1 - a) * (label_loss + domain_loss) + a * (moved_label_loss + moved_domain_loss)
        # With the mean, how far an image moves depends on how many there are.
        return values if self._config.gradient_of == "image" else values.mean()

    def _moved(
        self, x: Float[Tensor, "m 3 h w"], losses: Float[Tensor, " m"]
    ) -> Float[Tensor, "m 3 h w"]:
        """Return x + ε clip(∇_x loss), a constant."""
        loss = losses.sum() if self._config.gradient_of == "image" else losses.mean()
        (slope,) = torch.autograd.grad(loss, x, retain_graph=True)
        clip = self._config.clip
        return (x + self._config.epsilon * slope.clamp(-clip, clip)).detach()
