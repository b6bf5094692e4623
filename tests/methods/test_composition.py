"""Methods that are a loss, inside of CICF's step: the exact gradient, against unrolled autograd.

To have another method checked, add its options to BASES.
"""

import math

import pytest
import torch
from tests.support.methods import DigitsLayout, built, draw_for, pictures
from tests.support.unrolled import distance, unrolled_gradients
from torch import Tensor

from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.method import MethodConfig
from cicf.methods import CcsaConfig, Cicf, CicfConfig, CoralConfig, ErmConfig, MmdAaeConfig
from cicf.models.split import SplitModel

BASES: list[MethodConfig] = [
    ErmConfig(),
    CcsaConfig(),
    CcsaConfig(weight=0.8, negatives_per_positive=0.5),
    CoralConfig(),
    CoralConfig(gamma=100.0),
    MmdAaeConfig(lambda_adv=0.0),
    MmdAaeConfig(lambda_adv=0.0, lambda_ae=5.0, lambda_mmd=20.0),
]
"""Losses to be taken inside; what is random in them comes from torch's own state."""
CUTS: list[tuple[str, ...]] = [(), ("block1",)]
ALPHA = 0.1


def named(base: MethodConfig) -> str:
    return base.name


def network(before: tuple[str, ...]) -> SplitModel:
    """Return a network without kinks, cut after its first block or before it."""
    torch.manual_seed(0)
    stages = ("block1", "block2", "block3")
    cut = before[-1] if before else "input"
    return SplitModel(DigitsLayout(), cut=cut, before=before, stages=stages)


def composed(base: MethodConfig, model: SplitModel, **options: object) -> tuple[Cicf, Draw]:
    """Return CICF with a loss inside, and what it draws in a step."""
    usual = {"alpha": ALPHA, "max_step_ratio": math.inf, "chunk": None}
    method = built(CicfConfig(base=base, **{**usual, **options}), model, pictures(3))
    assert isinstance(method, Cicf)
    return method, draw_for(method, pictures(3))


def stepped(method: Cicf, draw: Draw, *, seed: int = 3) -> dict[str, Tensor | None]:
    """Return what a step leaves in `.grad` of the network, and of the loss's own parameters."""
    torch.manual_seed(seed)
    method.backward(draw)
    assert method.base is not None
    own = {f"loss.{name}": p.grad for name, p in method.base.named_parameters()}
    return {name: p.grad for name, p in method.model.named_parameters()} | own


def unrolled(method: Cicf, draw: Draw, *, seed: int = 3) -> dict[str, Tensor | None]:
    """Return the same by differentiating through the inner step."""
    torch.manual_seed(seed)
    assert method.base is not None
    model = method.model
    return unrolled_gradients(
        model, draw.inner, draw.outer, loss=method.base, alpha=ALPHA, h=model.h
    )


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("before", CUTS, ids=str)
@pytest.mark.parametrize("base", BASES, ids=named)
def test_a_loss_inside_of_the_step_has_the_exact_gradient(
    base: MethodConfig, before: tuple[str, ...]
) -> None:
    method, draw = composed(base, network(before))
    assert distance(stepped(method, draw), unrolled(method, draw)) < 1e-10


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("base", BASES, ids=named)
def test_without_a_step_it_is_the_loss_of_the_outer_batch(base: MethodConfig) -> None:
    method, draw = composed(base, network(()), alpha=0.0)
    found = stepped(method, draw)
    assert method.base is not None
    for parameter in method.trained:
        parameter.grad = None
    torch.manual_seed(3)
    method.base.backward(draw)
    own = {f"loss.{name}": p.grad for name, p in method.base.named_parameters()}
    expected = {name: p.grad for name, p in method.model.named_parameters()} | own
    assert distance(found, expected) < 1e-10


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("base", [base for base in BASES if base != ErmConfig()], ids=named)
def test_the_loss_inside_is_not_the_cross_entropy(base: MethodConfig) -> None:
    method, draw = composed(base, network(()))
    plain, _ = composed(ErmConfig(), network(()))
    found, usual = stepped(method, draw), stepped(plain, draw)
    assert distance({name: found[name] for name in usual}, usual) > 1e-3


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("base", BASES, ids=named)
def test_the_inner_batch_may_lack_domains(base: MethodConfig) -> None:
    method, draw = composed(base, network(()))
    assert draw.inner is not None
    alone = Samples(*(field[draw.inner.domain == 0] for field in draw.inner))
    lone = Samples(*(field[:1] for field in draw.outer))
    mixed = Samples(*(torch.cat(two) for two in zip(alone, lone, strict=True)))
    mixed = mixed._replace(domain=mixed.domain.index_fill(0, torch.tensor([len(alone.y)]), 2))
    for inner in (alone, mixed):
        method.zero_grad()
        method.model.zero_grad()
        part = draw._replace(inner=inner)
        assert distance(stepped(method, part), unrolled(method, part)) < 1e-10


def test_a_batch_inside_has_as_many_images_of_every_domain() -> None:
    _, draw = composed(CoralConfig(), network(()))
    assert draw.tasks == 1
    assert draw.outer.domain.bincount().tolist() == [8, 8, 8]


def test_a_method_with_a_discriminator_is_more_than_a_loss() -> None:
    with pytest.raises(ConfigError, match="'mmd_aae' is more than a loss of one batch"):
        composed(MmdAaeConfig(), network(()))


def test_what_the_loss_inside_needs_is_needed() -> None:
    model, data = network(()), pictures(3)
    plain = built(CicfConfig(), model, data)
    inside = built(CicfConfig(base=CoralConfig()), model, data)
    assert (plain.needs_domains, plain.least_domains) == (False, 1)
    assert (inside.needs_domains, inside.least_domains) == (True, 2)
