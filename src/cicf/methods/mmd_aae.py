"""MMD-AAE: codes that are alike in all source domains, and spread as a prior. Needs domain labels.

The code h = Q(x) is what enters the head of the network, so that the network that is deployed is
the usual one; x is what the part of the network that makes the code is given.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor, nn
from torch.distributions import Laplace

from cicf.core import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.core.modes import evaluating
from cicf.data.sampling import Sampling
from cicf.maths.alignment import mmd_squared
from cicf.method import About, Given, Logged, LossMethod, MethodConfig, Turn
from cicf.models.split import SplitModel
from cicf.models.taps import Change, Seen, changed, chosen_layers, features_and_logits, head_of


class MmdAaeConfig(MethodConfig):
    """Aligns features by MMD, and shapes them by a decoder and by a prior's discriminator."""

    about: ClassVar[About] = About(
        reference="Li et al., CVPR 2018",
        needs_domains=True,
        extra_networks="decoder, discriminator",
        cost=1.1,
    )
    name: Literal["mmd_aae"] = "mmd_aae"
    """The method, as `cicf methods` lists it."""
    lambda_mmd: float = Field(default=2.0, ge=0, allow_inf_nan=False)
    """Weight of the MMD between domains; 2 in a reimplementation [code]."""
    lambda_ae: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Weight of the reconstruction; 0 for no decoder. 0.1 in a reimplementation [code]."""
    lambda_adv: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Weight of the discriminator's verdict; 0 for no discriminator. 0.1 in a reimplementation
    [code]."""
    gammas: tuple[PositiveFloat, ...] = Field(default=(0.5, 0.1, 0.05), min_length=1)
    """γ of the kernels exp(−γ‖h − h'‖²): 1/(2σ²) with σ² of 1, 5, 10 as in a reimplementation
    [code]; in DomainBed's MMD 0.001, 0.01, 0.1, 1, 10, 100, 1000 [code]."""
    kernels: Literal["mean", "sum"] = "mean"
    """Whether kernels are averaged, as in the reimplementation [code], or added up, as in the
    publication [mem] and in DomainBed's MMD [code]."""
    pairs: Literal["all", "distinct"] = "all"
    """The pairs of domains that the MMD is a mean of: all D², of which D are 0 [mem], or those of
    two different domains, as in DomainBed's MMD [code]."""
    adversary: Literal["minimax", "non-saturating"] = "minimax"
    """What the features minimise: log(1 − A(h)) as published [mem], or −log A(h), whose slope does
    not vanish when the discriminator A is sure; reimplementations have forms of the latter
    [code]."""
    prior: Literal["laplace", "exponential"] = "laplace"
    """What the discriminator takes for real, of scale 1: Laplace as published [mem], or its
    absolute value, for features that a ReLU keeps from falling below 0."""
    hidden: PositiveInt | None = None
    """Width of the discriminator's hidden layer; None for as many as the code has [code]."""
    dropout: float = Field(default=0.25, ge=0, lt=1)
    """The part of the code that is hidden from the decoder; 0.25 in a reimplementation [code]."""
    layers: tuple[str, ...] = ()
    """Modules whose outputs, averaged over positions, are x; none for the last stage before the
    code."""

    def build(self, given: Given) -> "MmdAae":
        """Return MMD-AAE on this model."""
        return MmdAae(self, given)


class _Terms(NamedTuple):
    """Holds the terms of the loss, without their weights."""

    cross_entropy: Float[Tensor, ""]
    mmd: Float[Tensor, ""]
    reconstruction: Float[Tensor, ""]
    adversarial: Float[Tensor, ""]


class MmdAae(LossMethod):
    """Trains the network and the decoder, then the discriminator on the codes that it was shown.

    Without a discriminator it is a loss and nothing more, which CICF's step can take.
    """

    sampling = Sampling(outer="domains")
    least_domains = 2

    def __init__(self, config: MmdAaeConfig, given: Given) -> None:
        super().__init__(given.model)
        self._config = config
        size = head_of(given.model).in_features
        self._layers, num_decoded = _layers_below(config, given) if config.lambda_ae else ((), 0)
        self.decoder = _decoder(size, num_decoded, config.dropout) if config.lambda_ae else None
        width = config.hidden or size
        self.discriminator = _discriminator(size, width) if config.lambda_adv else None
        self._codes: Float[Tensor, "n d"] | None = None

    @property
    def turns(self) -> tuple[Turn, ...]:
        """Return the network's turn with the decoder, then the discriminator's if there is one."""
        if self.discriminator is None:
            return super().turns
        judges = tuple(self.discriminator.parameters())
        others = tuple(each for each in self.trained if each not in set(judges))
        return (
            Turn("network", others, self.backward),
            Turn("discriminator", judges, self._teach_discriminator),
        )

    def loss(self, model: SplitModel, batch: Samples) -> Float[Tensor, ""]:
        """Return CE + λ_mmd MMD² + λ_ae ‖P(h) − x‖² + λ_adv log(1 − A(h))."""
        return self._weighted(self._terms(*_forward(model, batch.x, self._layers), batch))

    def backward(self, draw: Draw) -> Logged:
        """Accumulate the gradient for all but the discriminator, and keep the codes for that."""
        seen, outputs = _forward(self.model, draw.outer.x, self._layers)
        terms = self._terms(seen, outputs, draw.outer)
        loss = self._weighted(terms)
        loss.backward()
        self._codes = seen.features.detach()
        return {"loss": loss.detach()} | {
            name: term.detach() for name, term in terms._asdict().items()
        }

    def _teach_discriminator(self, draw: Draw) -> Logged:
        """Accumulate the gradient of −mean log A(h') − mean log(1 − A(h)), h' of the prior."""
        del draw
        assert self.discriminator is not None
        assert self._codes is not None
        # The codes of the network's own turn: the reimplementations do so, and a second forward
        # would cost time and move the statistics of batch norm again.
        codes, self._codes = self._codes, None
        prior = Laplace(torch.zeros_like(codes), 1.0).sample()
        if self._config.prior == "exponential":
            prior = prior.abs()
        real, made = self.discriminator(prior), self.discriminator(codes)
        loss = -F.logsigmoid(real).mean() - F.logsigmoid(-made).mean()
        loss.backward()
        return {"discriminator_loss": loss.detach()}

    def _weighted(self, terms: _Terms) -> Float[Tensor, ""]:
        config = self._config
        return (
            terms.cross_entropy
            + config.lambda_mmd * terms.mmd
            + config.lambda_ae * terms.reconstruction
            + config.lambda_adv * terms.adversarial
        )

    def _terms(self, seen: Seen, outputs: Mapping[str, Tensor], batch: Samples) -> _Terms:
        codes = seen.features
        reconstruction, adversarial = codes.new_zeros(()), codes.new_zeros(())
        if self.decoder is not None:
            # x stands for the data: the network must not make it easier to reconstruct.
            x = torch.cat([_pooled(outputs[name]) for name in self._layers], dim=1).detach()
            reconstruction = F.mse_loss(self.decoder(codes), x)
        if self.discriminator is not None:
            verdict = self.discriminator(codes)
            is_minimax = self._config.adversary == "minimax"
            adversarial = (F.logsigmoid(-verdict) if is_minimax else -F.logsigmoid(verdict)).mean()
        return _Terms(
            F.cross_entropy(seen.logits, batch.y),
            self._mmd(codes, batch),
            reconstruction,
            adversarial,
        )

    def _mmd(self, codes: Float[Tensor, "n d"], batch: Samples) -> Float[Tensor, ""]:
        """Return the mean of MMD² over pairs of the domains in the batch."""
        table = mmd_squared(codes, batch.domain, self._config.gammas)
        if self._config.kernels == "mean":
            table = table / len(self._config.gammas)
        count = len(table)
        num_pairs = count**2 if self._config.pairs == "all" else max(1, count * (count - 1))
        return table.sum() / num_pairs


def _forward(
    model: SplitModel, x: Float[Tensor, "n c h w"], layers: Sequence[str]
) -> tuple[Seen, dict[str, Tensor]]:
    """Return codes and logits, and what the layers put out by name, of one forward."""
    outputs: dict[str, Tensor] = {}

    def kept(name: str) -> Change:
        def keep(output: Tensor) -> Tensor:
            outputs[name] = output
            return output

        return keep

    with changed(model, {name: kept(name) for name in layers}):
        return features_and_logits(model, x), outputs


def _pooled(output: Float[Tensor, "n c ..."]) -> Float[Tensor, "n c"]:
    return output.flatten(2).mean(2) if output.ndim > 2 else output


def _layers_below(config: MmdAaeConfig, given: Given) -> tuple[tuple[str, ...], int]:
    """Return the layers to reconstruct, and how many numbers they put out for an image."""
    model, side = given.model, given.image_size
    stages = range(len(model.stages))
    names = chosen_layers(model, config.layers, option="method.layers", stages=stages)
    # No two numbers the same, or a layer could be taken for the code because both are constant.
    image = torch.linspace(-1, 1, 3 * side**2).reshape(1, 3, side, side)
    with evaluating(model), torch.no_grad():
        seen, outputs = _forward(model, image.to(head_of(model).weight), names)
    for name in names:
        if name not in outputs:
            raise ConfigError(
                f"method.layers={name!r} takes no part in the forward; name a module that does"
            )
    if not config.layers:
        names = tuple(name for name in names if not _is_code(outputs[name], seen.features))[-1:]
    if not names:
        raise ConfigError(
            "every stage of this network is what enters its head, so there is nothing below to "
            "reconstruct; name modules with method.layers, or set method.lambda_ae=0"
        )
    return names, sum(_pooled(outputs[name]).shape[1] for name in names)


def _is_code(output: Tensor, code: Float[Tensor, "n d"]) -> bool:
    """Tell whether what a layer puts out is the code but for its shape, or for the pooling."""
    forms = (output.flatten(1), _pooled(output))
    return any(each.shape == code.shape and torch.allclose(each, code) for each in forms)


def _decoder(size: int, num_decoded: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Dropout(dropout), nn.Linear(size, num_decoded))


def _discriminator(size: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, 1))
