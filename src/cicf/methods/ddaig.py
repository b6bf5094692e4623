"""DDAIG: a network that changes images until their domain is lost and their class is not."""

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt
from torch import Tensor, nn

from cicf.core.draw import Draw, Samples
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.maths.normalisation import from_pixels, to_pixels
from cicf.method import About, Given, Logged, Method, MethodConfig, Turn, source_ids
from cicf.models.taps import copied_with_head

_SMALL = 32
"""The largest side of images that the narrow transformer is for."""


class DdaigConfig(MethodConfig):
    """Trains on images that another network changes until a third mistakes their domain."""

    about: ClassVar[About] = About(
        reference="Zhou et al., AAAI 2020",
        needs_domains=True,
        extra_networks="a network for domains, an image transformer",
        norm_updates=(3, 0),
        cost=10.5,
    )
    name: Literal["ddaig"] = "ddaig"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The network for classes is the model."""
    lam: NonNegativeFloat = 0.3
    """λ, how far a pixel moves at most, where pixels are 0 to 1 [code]."""
    a: float = Field(default=0.5, ge=0, le=1)
    """The share of the changed images in the loss [code]."""
    warmup: NonNegativeInt = 0
    """W, the epochs at the start whose loss has no changed images; 3 on PACS and Office-Home, 0 on
    Digits-DG [code]."""
    clips: bool = False
    """Whether changed pixels are clipped to 0 to 1 [code]."""
    width: PositiveInt | None = None
    """Channels of the transformer; None for 32 up to images of 32x32, and 64 for larger [code]."""
    blocks: NonNegativeInt = 3
    """Residual blocks of the transformer [code]."""

    def build(self, given: Given) -> "Ddaig":
        """Return DDAIG on this model."""
        return Ddaig(self, given)


class Ddaig(Method):
    """Takes three turns: the transformer, the network, the network for domains."""

    sampling = Sampling()
    needs_domains = True
    epoch: Tensor

    def __init__(self, config: DdaigConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._given = config, given
        width = config.width or (32 if given.image_size <= _SMALL else 64)
        self.transformer = ImageTransformer(width, config.blocks)
        self.domain_net = copied_with_head(given.model, len(given.sources))
        self.register_buffer("epoch", torch.zeros((), dtype=torch.int64))

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the updates of a step, each after what the one before left."""
        return (
            Turn("transformer", tuple(self.transformer.parameters()), self.backward_transformer),
            Turn("network", _trainable(self.model), self.backward),
            Turn("domains", _trainable(self.domain_net), self.backward_domains),
        )

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Keep the epoch, which says whether there are changed images in the loss."""
        del images
        self.epoch.fill_(epoch)

    def changed(self, batch: Samples) -> Float[Tensor, "m 3 h w"]:
        """Return x̃ = x + λ G(x), in pixels, as a network takes it."""
        given = self._given
        pixels = to_pixels(batch.x, given.mean, given.std)
        pixels = pixels + self._config.lam * self.transformer(pixels)
        if self._config.clips:
            pixels = pixels.clamp(0, 1)
        return from_pixels(pixels, given.mean, given.std)

    def backward_transformer(self, draw: Draw) -> Logged:
        """Accumulate the gradient of CE(l(x̃), y) − CE(m(x̃), d) by G."""
        batch = draw.outer
        changed = self.changed(batch)
        label_loss = F.cross_entropy(self.model(changed), batch.y)
        domain_loss = F.cross_entropy(self.domain_net(changed), self._domains(batch))
        loss = label_loss - domain_loss
        loss.backward(inputs=list(self.transformer.parameters()))
        return {"transformer_loss": loss.detach()}

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient of (1−a) CE(l(x), y) + a CE(l(x̃), y), or of CE(l(x), y)."""
        batch = draw.outer
        loss = F.cross_entropy(self.model(batch.x), batch.y)
        if self.epoch >= self._config.warmup:
            with torch.no_grad():
                changed = self.changed(batch)
            a = self._config.a
            loss = (1 - a) * loss + a * F.cross_entropy(self.model(changed), batch.y)
        loss.backward()
        return {"loss": loss.detach()}

    def backward_domains(self, draw: Draw) -> Logged:
        """Accumulate the gradient of CE(m(x), d)."""
        loss = F.cross_entropy(self.domain_net(draw.outer.x), self._domains(draw.outer))
        loss.backward()
        return {"domain_loss": loss.detach()}

    def _domains(self, batch: Samples) -> Tensor:
        return source_ids(batch.domain, self._given.sources)


class ImageTransformer(nn.Module):
    """Puts out a change for every pixel, between −1 and 1, as large as the image."""

    def __init__(self, width: int, num_blocks: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(_conv(3, width), nn.InstanceNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(*(_Residual(width) for _ in range(num_blocks)))
        self.fusion = nn.Sequential(
            nn.Conv2d(2 * width, width, 1, bias=False), nn.InstanceNorm2d(width), nn.ReLU()
        )
        self.head = nn.Conv2d(width, 3, 1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.02)
        assert self.head.bias is not None
        nn.init.zeros_(self.head.bias)

    def forward(self, pixels: Float[Tensor, "m 3 h w"]) -> Float[Tensor, "m 3 h w"]:
        """Return the change, which each pixel makes knowing the mean over all of them."""
        z = self.blocks(self.stem(pixels))
        context = z.mean(dim=(2, 3), keepdim=True).expand_as(z)
        return torch.tanh(self.head(self.fusion(torch.cat([z, context], dim=1))))


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.change = nn.Sequential(
            _conv(width, width),
            nn.InstanceNorm2d(width),
            nn.ReLU(),
            _conv(width, width),
            nn.InstanceNorm2d(width),
        )

    def forward(self, z: Tensor) -> Tensor:
        changed: Tensor = z + self.change(z)
        return changed


def _conv(channels: int, width: int) -> nn.Conv2d:
    return nn.Conv2d(channels, width, 3, padding=1, padding_mode="reflect", bias=False)


def _trainable(module: nn.Module) -> tuple[nn.Parameter, ...]:
    return tuple(parameter for parameter in module.parameters() if parameter.requires_grad)
