"""FACT: images in the amplitudes of others, and a slow teacher that has to be agreed with."""

import copy
import math
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from cicf.core import ConfigError
from cicf.core.draw import Samples
from cicf.data.loader import Evaluated
from cicf.data.sampling import Sampling
from cicf.maths.fourier import amplitude_mix
from cicf.maths.normalisation import from_pixels, to_pixels
from cicf.method import About, Given, LossMethod, MethodConfig
from cicf.models.split import SplitModel

Partners = Literal["all", "inter", "intra"]
"""Whose amplitudes an image may get: of any image, of other domains', or of its own domain's."""


class FactConfig(MethodConfig):
    """Trains on images in the Fourier amplitudes of others, and to agree with a slow teacher."""

    about: ClassVar[About] = About(
        reference="Xu et al., CVPR 2021",
        extra_networks="teacher: a running mean of the network",
        cost=3.0,
    )
    name: Literal["fact"] = "fact"
    """The method, as `cicf methods` lists it."""
    deploy: Literal["theta"] = "theta"
    """The network is the model, not its teacher."""
    eta: float = Field(default=1.0, ge=0, le=1)
    """η, the largest part of an amplitude that comes from the partner: λ ~ U(0, η); 1 on PACS
    [code], 0.2 on Office-Home [mem]."""
    partners: Partners = "all"
    """Whose amplitudes an image gets: `all` [code], `inter` (other domains), `intra` (its own)."""
    consistency: NonNegativeFloat = 2.0
    """λ_c, the weight of the agreement with the teacher; 2 on PACS [code], 200 on Office-Home
    [mem]."""
    ramp: NonNegativeInt = 5
    """Epochs in which that weight grows, as λ_c exp(−5 (1 − e / ramp)²); 0 for at once [code]."""
    temperature: PositiveFloat = 10.0
    """T, by which logits are divided before teacher and network are compared [code]."""
    momentum: float = Field(default=0.9995, ge=0, lt=1)
    """How slowly the teacher follows; after t steps at most 1 − 1 / (t + 1) [code]."""

    def build(self, given: Given) -> "Fact":
        """Return FACT on this model."""
        if self.partners == "inter" and len(given.sources) < 2:
            raise ConfigError(
                "method.partners='inter' takes amplitudes from other domains, but there is one "
                "source domain only; add a domain, or use partners='all'"
            )
        return Fact(self, given)

    def weight_at(self, epoch: int) -> float:
        """Return the weight of the agreement in an epoch, counted from 0."""
        if self.ramp == 0:
            return self.consistency
        left = 1 - min(epoch, self.ramp) / self.ramp
        return self.consistency * math.exp(-5 * left**2)


class Fact(LossMethod):
    """Puts a batch and its mixed images through the network and through the teacher."""

    sampling = Sampling()
    weight: Tensor
    steps_taken: Tensor

    def __init__(self, config: FactConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config, self._given = config, given
        self.teacher = teacher_of(given.model)
        self.register_buffer("weight", torch.tensor(config.weight_at(0)))
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.int64))

    @property
    def needs_domains(self) -> bool:
        """Tell whether partners are chosen by domain."""
        return self._config.partners != "all"

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        """Return ½ CE(x) + ½ CE(x̂) + w [KL(T(x) ‖ S(x̂)) + KL(T(x̂) ‖ S(x))]."""
        both = torch.cat([batch.x, self.mixed(batch)])
        logits, mixed_logits = model(both).chunk(2)
        with torch.no_grad():
            taught, mixed_taught = self.teacher(both).chunk(2)
        plain = F.cross_entropy(logits, batch.y) + F.cross_entropy(mixed_logits, batch.y)
        temperature = self._config.temperature
        agreement = divergence(taught, mixed_logits, temperature)
        agreement = agreement + divergence(mixed_taught, logits, temperature)
        return plain / 2 + self.weight * agreement

    def mixed(self, batch: Samples) -> Float[Tensor, "m 3 h w"]:
        """Return x̂, the images in a part of the amplitudes of partners, as far as pixels can go."""
        mean, std = self._given.mean, self._given.std
        pixels = to_pixels(batch.x, mean, std)
        partner = partners_of(batch.domain, self._config.partners)
        lam = self._config.eta * torch.rand(len(pixels), dtype=pixels.dtype, device=pixels.device)
        return from_pixels(amplitude_mix(pixels, pixels[partner], lam).clamp(0, 1), mean, std)

    def before_epoch(self, epoch: int, images: Evaluated) -> None:
        """Let the weight of the agreement grow."""
        del images
        self.weight.fill_(self._config.weight_at(epoch))

    @torch.no_grad()
    def after_step(self) -> None:
        """Let the weights of the teacher follow those of the network."""
        self.steps_taken += 1
        momentum = min(1 - 1 / (int(self.steps_taken) + 1), self._config.momentum)
        for slow, fast in zip(self.teacher.parameters(), self.model.parameters(), strict=True):
            slow.mul_(momentum).add_(fast, alpha=1 - momentum)


def teacher_of(model: SplitModel) -> SplitModel:
    """Return a copy that is never trained and normalises by batch statistics, keeping none."""
    teacher = copy.deepcopy(model).requires_grad_(False).train()
    for norm in teacher.modules():
        if isinstance(norm, _NormBase):
            norm.track_running_stats = False
            norm.running_mean = norm.running_var = norm.num_batches_tracked = None
            # Without statistics it takes those of the batch in this mode, too; and who puts norms
            # to running statistics for a while finds nothing to do.
            norm.training = False
    return teacher


def partners_of(domain: Int[Tensor, " m"], partners: Partners) -> Int[Tensor, " m"]:
    """Return where in the batch the partner of each image is, at random.

    With `all` each image is the partner of one; else drawn for each image by itself. An image whose
    domain is the only one in the batch has no partner in others, and is its own.
    """
    if partners == "all":
        return torch.randperm(len(domain), device=domain.device)
    is_same = domain[:, None] == domain
    is_open = is_same if partners == "intra" else ~is_same
    is_open = is_open | (~is_open.any(dim=1, keepdim=True) & torch.eye(len(domain)).to(is_open))
    return torch.multinomial(is_open.to(torch.float32), 1)[:, 0]


def divergence(
    taught: Float[Tensor, "m classes"], logits: Float[Tensor, "m classes"], temperature: float
) -> Float[Tensor, ""]:
    """Return the mean over images of KL(softmax(taught / T) ‖ softmax(logits / T))."""
    return F.kl_div(
        F.log_softmax(logits / temperature, dim=1),
        F.log_softmax(taught / temperature, dim=1),
        reduction="batchmean",
        log_target=True,
    )
