"""The step as a guest in somebody's loop: what it writes, what it leaves alone, what it refuses."""

import copy
import gc
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import TiedNet, conv_net, dropout_net, images, norm_net, smooth_net
from tests.support.unrolled import distance, stepped_gradients
from torch import Tensor, nn

from cicf import ConfigError, DataError, Intervention


def test_gradients_accumulate_as_backward_does() -> None:
    model = conv_net()
    step = Intervention(model, alpha=0.1)
    step.backward(images(8), images(4))
    once = {
        name: value.clone() for name, value in stepped_gradients(model).items() if value is not None
    }
    step.backward(images(8), images(4))
    assert (
        distance(stepped_gradients(model), {name: 2 * value for name, value in once.items()}) == 0
    )


def test_parameters_do_not_move() -> None:
    model = conv_net()
    before = copy.deepcopy(model.state_dict())
    Intervention(model, alpha=0.1, chunk=2).backward(images(8), images(4))
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_any_optimiser_lowers_the_loss() -> None:
    model = conv_net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = Intervention(model, h=["stem"], alpha=0.1)
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        losses.append(float(step.backward(images(32, 1), images(16, 2)).outer_loss))
        optimizer.step()
    assert losses[-1] < 0.2 * losses[0]


@pytest.mark.usefixtures("float64")
def test_scale_multiplies_the_gradient_and_not_the_terms() -> None:
    model = conv_net()
    plain_terms = Intervention(model, alpha=0.1).backward(images(8), images(4))
    plain = copy.deepcopy(stepped_gradients(model))
    model.zero_grad()
    terms = Intervention(model, alpha=0.1).backward(images(8), images(4), scale=1024.0)
    scaled = {
        name: value / 1024 for name, value in stepped_gradients(model).items() if value is not None
    }
    assert distance(scaled, plain) < 1e-12
    torch.testing.assert_close(terms.outer_loss, plain_terms.outer_loss)
    torch.testing.assert_close(terms.curvature_norm, plain_terms.curvature_norm)


def test_step_works_with_a_gradient_scaler() -> None:
    model, plain = conv_net(), conv_net()
    plain.load_state_dict(model.state_dict())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, plain)]
    Intervention(model, alpha=0.1).backward(
        images(8), images(4), scale=scaler.scale(torch.ones(()))
    )
    scaler.step(optimizers[0])
    scaler.update()
    Intervention(plain, alpha=0.1).backward(images(8), images(4))
    optimizers[1].step()
    for scaled, expected in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(scaled, expected)


@pytest.mark.usefixtures("float64")
def test_terms_say_what_the_step_did() -> None:
    model = smooth_net()
    inner, outer = images(8, 1), images(4, 2)
    terms = Intervention(model, alpha=0.2).backward(inner, outer)
    moved = copy.deepcopy(model)
    F.cross_entropy(moved(inner[0]), inner[1]).backward()
    g = torch.cat([p.grad.flatten() for p in moved.parameters() if p.grad is not None])
    theta = torch.cat([p.detach().flatten() for p in model.parameters()])
    before = F.cross_entropy(moved(outer[0]), outer[1])
    with torch.no_grad():
        for p in moved.parameters():
            p -= 0.2 * p.grad
    moved.zero_grad()
    after = F.cross_entropy(moved(outer[0]), outer[1])
    after.backward()
    v = torch.cat([p.grad.flatten() for p in moved.parameters() if p.grad is not None])
    total = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert terms.alpha == 0.2
    assert terms.is_exact
    torch.testing.assert_close(
        terms.inner_loss, F.cross_entropy(model(inner[0]), inner[1]).detach()
    )
    torch.testing.assert_close(terms.outer_loss_before, before.detach())
    torch.testing.assert_close(terms.outer_loss, after.detach())
    torch.testing.assert_close(terms.step_ratio, 0.2 * g.norm() / theta.norm())
    torch.testing.assert_close(terms.cosine, F.cosine_similarity(g, v, dim=0))
    torch.testing.assert_close(terms.curvature_norm, (total - v).norm())


def test_terms_without_the_loss_before() -> None:
    terms = Intervention(conv_net(), alpha=0.1, measures_before=False).backward(
        images(8), images(4)
    )
    assert terms.outer_loss_before.isnan()
    assert not any(
        getattr(terms, name).requires_grad for name in ("inner_loss", "outer_loss", "cosine")
    )


def test_measuring_the_loss_before_changes_nothing_else() -> None:
    model = dropout_net()
    state = torch.get_rng_state()
    Intervention(model, alpha=0.1).backward(images(8), images(4))
    measured, drawn = copy.deepcopy(stepped_gradients(model)), torch.rand(2)
    model.zero_grad()
    torch.set_rng_state(state)
    Intervention(model, alpha=0.1, measures_before=False).backward(images(8), images(4))
    assert distance(stepped_gradients(model), measured) == 0
    assert torch.equal(drawn, torch.rand(2))


def test_failure_leaves_everything_as_it_was() -> None:
    model = norm_net()
    Intervention(model, alpha=0.1).backward(images(8), images(4))
    calls = 0

    def failing(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        nonlocal calls
        calls += 1
        loss = F.cross_entropy(model(batch[0]), batch[1], reduction="none")
        torch.rand(7)
        if calls == 4:
            raise MemoryError("out of memory in the third pass")
        return loss

    before = copy.deepcopy((model.state_dict(), stepped_gradients(model)))
    state = torch.get_rng_state()
    step = Intervention(model, alpha=0.1, loss=failing, keeps_graphs=False)
    with pytest.raises(MemoryError):
        step.backward(images(8), images(4))
    assert calls == 4
    assert all(torch.equal(before[0][name], value) for name, value in model.state_dict().items())
    assert distance(stepped_gradients(model), before[1]) == 0
    assert torch.equal(state, torch.get_rng_state())
    assert all(module.training for module in model.modules())


@pytest.mark.slow
def test_memory_does_not_grow_over_60_steps() -> None:
    model = norm_net()
    step = Intervention(model, alpha=0.1, h=["stem"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def live_bytes() -> int:
        gc.collect()
        tensors = (o for o in gc.get_objects() if issubclass(type(o), Tensor))
        return sum(t.untyped_storage().nbytes() for t in tensors)

    seen = []
    gc.disable()
    try:
        for index in range(60):
            optimizer.zero_grad()
            step.backward(images(8, index), images(4, index))
            optimizer.step()
            if index in (9, 59):
                seen.append(live_bytes())
    finally:
        gc.enable()
    assert seen[1] <= seen[0]


def test_works_without_gradients_enabled_around_it() -> None:
    model = conv_net()
    with torch.no_grad():
        Intervention(model, alpha=0.1).backward(images(8), images(4))
    assert all(parameter.grad is not None for parameter in model.parameters())


class Named(NamedTuple):
    image: Tensor
    label: Tensor
    domain: Tensor | None


@dataclass
class Opaque:
    image: Tensor


def test_batches_are_any_nesting_of_tensors() -> None:
    model = conv_net()

    def loss(model: nn.Module, batch: dict[str, Named]) -> Tensor:
        data = batch["data"]
        return F.cross_entropy(model(data.image), data.label, reduction="none")

    inner, outer = ({"data": Named(*images(size), domain=None)} for size in (8, 4))
    Intervention(model, alpha=0.1, loss=loss, chunk=3).backward(inner, outer)
    found = copy.deepcopy(stepped_gradients(model))
    model.zero_grad()
    Intervention(model, alpha=0.1, chunk=3).backward(images(8), images(4))
    assert distance(stepped_gradients(model), found) == 0


@pytest.mark.parametrize(
    ("batch", "sentence"),
    [
        ((torch.randn(3, 3, 8, 8), torch.zeros(2, dtype=torch.int64)), "share dimension 0"),
        ((torch.randn(3, 3, 8, 8), ["a", "b", "c"]), r"batch\[1\]\[0\] is a str"),
        ((torch.randn(3, 3, 8, 8), torch.tensor(1)), r"batch\[1\] is a scalar tensor"),
        (Opaque(torch.randn(3, 3, 8, 8)), "batch is a Opaque"),
        ((torch.randn(0, 3, 8, 8), torch.zeros(0, dtype=torch.int64)), "no samples"),
        ((), "no tensor"),
        (torch.randn(3, 3, 8, 8), r"takes a batch \(x, y\)"),
    ],
)
def test_bad_batches_are_named(batch: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        Intervention(conv_net(), alpha=0.1).backward(batch, images(4))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"h": ["stm"]}, "h='stm' is no module.*did you mean 'stem'"),
        ({"h": ["zzz"]}, "choose one of 'stem'"),
        ({"h": "stem"}, "h='stem' is not a sequence of names"),
        ({"h": ["stem", "body", "head"]}, "nothing to intervene on"),
        ({"h": None}, "h=None is not a sequence"),
        ({"h": [0]}, "h=0 is no module"),
        ({"alpha": "0.1"}, "alpha='0.1' must be"),
        ({"chunk": 2.5}, r"chunk=2\.5 must be"),
        ({"curvature": "a"}, "curvature='a' must be"),
        ({"loss": None}, "loss=None must be a function"),
        ({"alpha": -0.1}, r"alpha=-0\.1 must be"),
        ({"alpha": float("nan")}, "alpha=nan must be"),
        ({"order": 3}, "order=3 must be"),
        ({"chunk": 0}, "chunk=0 must be"),
        ({"curvature": 0.0}, r"curvature=0\.0 must be"),
        ({"curvature": 1.5}, r"curvature=1\.5 must be"),
    ],
)
@pytest.mark.usefixtures("untyped")
def test_bad_options_are_named(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Intervention(conv_net(), **{"alpha": 0.1, **options})


def test_alpha_may_change_between_steps_and_is_checked() -> None:
    step = Intervention(conv_net(), alpha=0.1)
    step.alpha = 0.5
    assert step.backward(images(8), images(4)).alpha == 0.5
    with pytest.raises(ConfigError, match="alpha=inf"):
        step.alpha = float("inf")


@pytest.mark.parametrize("option", [{"chunk": 3}, {"curvature": 0.5}])
def test_scalar_losses_refuse_what_takes_the_batch_apart(option: dict[str, float]) -> None:
    scalar = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])  # noqa: E731
    step = Intervention(conv_net(), alpha=0.1, loss=scalar, **option)
    with pytest.raises(
        ConfigError, match=r"(chunk=3|curvature=0\.5) needs a loss with one value per"
    ):
        step.backward(images(8), images(4))


def test_loss_of_another_shape_is_refused() -> None:
    step = Intervention(conv_net(), alpha=0.1, loss=lambda model, batch: model(batch[0]))
    with pytest.raises(DataError, match=r"shape \[8, 3\] for 8 samples"):
        step.backward(images(8), images(4))


def test_data_parallel_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"wrapped in DataParallel.*pass the module inside"):
        Intervention(nn.DataParallel(conv_net()), alpha=0.1)


def test_compiled_model_is_refused_at_order_two_only() -> None:
    model = conv_net()
    compiled = torch.compile(model, backend="eager")
    with pytest.raises(ConfigError, match="compiled"):
        Intervention(compiled, alpha=0.1)
    in_place = conv_net()
    in_place.compile(backend="eager")
    with pytest.raises(ConfigError, match="compiled"):
        Intervention(in_place, alpha=0.1)
    Intervention(compiled, alpha=0.1, order=1)


def test_lazy_parameters_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'0\.weight' has no shape yet"):
        Intervention(nn.Sequential(nn.LazyLinear(3)), alpha=0.1)


def test_operation_without_a_second_derivative_is_named() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.Hardsigmoid(), nn.Linear(8, 3))
    with pytest.raises(ConfigError, match=r"hardsigmoid_backward\); use order=1"):
        Intervention(model, alpha=0.1).backward(images(8), images(4))
    Intervention(model, alpha=0.1, order=1).backward(images(8), images(4))


def test_freezing_between_steps_is_noticed() -> None:
    model = conv_net()
    step = Intervention(model, h=["stem"], alpha=0.1)
    step.backward(images(8), images(4))
    model.zero_grad()
    model.stem.requires_grad_(False)
    step.backward(images(8), images(4))
    assert model.stem.weight.grad is None


@pytest.mark.usefixtures("float64")
def test_tied_buffers_and_parameters_keep_one_gradient() -> None:
    model = TiedNet()
    Intervention(model, alpha=0.1).backward(images(8), images(4))
    assert model.first.weight.grad is model.last.weight.grad
