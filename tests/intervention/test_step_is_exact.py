"""The gradient of a step against unrolled autograd, finite differences and its limits."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import (
    AttentionNet,
    CheckpointNet,
    TiedNet,
    conv_net,
    dropout_net,
    images,
    norm_net,
    smooth_net,
)
from tests.support.unrolled import distance, stepped_gradients, unrolled_gradients
from torch import Tensor, nn

from cicf import Intervention, cross_entropy_per_sample
from cicf.maths import intervention as paper

pytestmark = pytest.mark.usefixtures("float64")

INNER, OUTER = 10, 6


def gradients(model: nn.Module, **options: object) -> dict[str, Tensor | None]:
    """Return the gradient of one step on the standard batches, from a clean slate."""
    model.zero_grad(set_to_none=True)
    step = Intervention(model, **{"alpha": 0.3, **options})
    step.backward(images(INNER, 1), images(OUTER, 2))
    return stepped_gradients(model)


def reference(model: nn.Module, **options: object) -> dict[str, Tensor | None]:
    """Return the same by unrolled autograd."""
    settings = {"alpha": 0.3, "loss": cross_entropy_per_sample, **options}
    return unrolled_gradients(model, images(INNER, 1), images(OUTER, 2), **settings)


@pytest.mark.parametrize("h", [(), ("stem",), ("stem", "body.weight")])
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    "pieces",
    [{}, {"chunk": 3}, {"chunk": 3, "keeps_graphs": True}, {"keeps_graphs": False}],
    ids=["whole", "chunks", "chunks-with-graphs", "recomputed"],
)
def test_gradient_is_that_of_unrolled_autograd(
    h: tuple[str, ...], order: int, pieces: dict[str, object]
) -> None:
    model = conv_net()
    expected = reference(model, h=h, order=order)
    assert distance(gradients(model, h=h, order=order, **pieces), expected) < 1e-10


def test_mixed_term_reaches_the_parameters_before_z() -> None:
    model = conv_net()
    second, first = (gradients(model, h=("stem",), order=order)["stem.weight"] for order in (2, 1))
    assert second is not None
    assert first is not None
    assert (second - first).norm() > 1e-2 * first.norm()


@pytest.mark.parametrize(("is_frozen", "expected"), [(False, 4), (True, 2)])
def test_third_pass_differentiates_h_unless_it_is_frozen(
    is_frozen: bool, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = smooth_net()
    model.stem.requires_grad_(not is_frozen)
    asked: list[int] = []
    grad = torch.autograd.grad

    def counting(outputs: object, inputs: list[Tensor], *rest: object, **options: object) -> object:
        asked.append(len(inputs))
        return grad(outputs, inputs, *rest, **options)

    monkeypatch.setattr(torch.autograd, "grad", counting)
    gradients(model, h=("stem",), chunk=None)
    # Pass 2 asks for the parameters in place as well, to see that the loss does not reach them.
    of_theta = 2
    assert asked == [of_theta, 2 * expected, expected]


@pytest.mark.parametrize("h", [(), ("stem",)])
def test_gradient_is_that_of_finite_differences(h: tuple[str, ...]) -> None:
    model, epsilon = smooth_net(), 1e-5
    found = gradients(model, h=h)
    for name, parameter in model.named_parameters():
        direction = torch.randn_like(parameter)
        values = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter += sign * epsilon * direction
            values.append(cicf_loss_by_hand(model, h))
            with torch.no_grad():
                parameter -= sign * epsilon * direction
        slope = found[name]
        assert slope is not None
        assert float((slope * direction).sum()) == pytest.approx(
            float(values[0] - values[1]) / (2 * epsilon), rel=1e-6
        )


def cicf_loss_by_hand(model: nn.Module, h: tuple[str, ...], alpha: float = 0.3) -> Tensor:
    """Return L_CICF of the smooth network, the virtual step written out in its own arithmetic."""
    weights = dict(model.named_parameters())
    moves = [name for name in weights if not name.startswith(tuple(f"{p}." for p in h))] or []

    def forward(p: dict[str, Tensor], x: Tensor) -> Tensor:
        z = torch.tanh(F.conv2d(x, p["stem.weight"], p["stem.bias"], stride=2)).flatten(1)
        return z @ p["head.weight"].T + p["head.bias"]

    (x, y), (x_outer, y_outer) = images(INNER, 1), images(OUTER, 2)
    g = torch.autograd.grad(
        F.cross_entropy(forward(weights, x), y), [weights[name] for name in moves]
    )
    moved = dict(weights)
    for name, slope in zip(moves, g, strict=True):
        moved[name] = weights[name] - alpha * slope
    return F.cross_entropy(forward(moved, x_outer), y_outer).detach()


def test_gradient_is_that_of_the_papers_equations() -> None:
    model = smooth_net()
    theta = {name: value.detach().requires_grad_() for name, value in model.named_parameters()}

    def f(parameters: paper.Parameters, z: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (z,))

    inner, outer = (paper.Labelled(*images(size, seed)) for size, seed in ((INNER, 1), (OUTER, 2)))
    loss = paper.cicf_loss(f, theta, inner, outer, alpha=0.3)
    expected = dict(zip(theta, torch.autograd.grad(loss, list(theta.values())), strict=True))
    assert distance(gradients(model, chunk=4), {**expected}) < 1e-10


def test_orders_agree_as_alpha_vanishes() -> None:
    model = smooth_net()

    def gap(alpha: float) -> float:
        return distance(gradients(model, alpha=alpha, order=1), gradients(model, alpha=alpha))

    assert gap(1e-3) == pytest.approx(gap(1e-2) / 10, rel=0.05)
    assert gap(1e-5) < 1e-4


@pytest.mark.parametrize("build", [conv_net, dropout_net, norm_net])
@pytest.mark.parametrize("order", [1, 2])
def test_alpha_zero_is_erm_to_the_bit(build: Callable[[], nn.Module], order: int) -> None:
    torch.set_default_dtype(torch.float32)
    model = build()
    erm = copy.deepcopy(model)
    state = torch.get_rng_state()
    found = gradients(model, alpha=0.0, order=order)
    drawn = torch.rand(3)
    torch.set_rng_state(state)
    x, y = images(OUTER, 2)
    F.cross_entropy(erm(x), y).backward()
    for name, parameter in erm.named_parameters():
        assert parameter.grad is not None
        assert torch.equal(found[name], parameter.grad)
    buffers = dict(model.named_buffers())
    assert all(torch.equal(buffers[name], buffer) for name, buffer in erm.named_buffers())
    assert torch.equal(drawn, torch.rand(3))


def test_replay_draws_the_masks_of_the_first_pass() -> None:
    model = dropout_net()
    state = torch.get_rng_state()
    kept = gradients(model, chunk=3, keeps_graphs=True)
    after_kept = torch.rand(3)
    torch.set_rng_state(state)
    replayed = gradients(model, chunk=3)
    assert distance(replayed, kept) < 1e-12
    assert torch.equal(torch.rand(3), after_kept)


def test_replay_covers_the_generators_of_the_loss() -> None:
    model, stream = smooth_net(), torch.Generator()

    def noisy(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        noise = torch.randn(x.shape, generator=stream)
        return F.cross_entropy(model(x + noise), y, reduction="none")

    def run(**options: object) -> dict[str, Tensor | None]:
        stream.manual_seed(5)
        return gradients(model, chunk=3, loss=noisy, generators=[stream], **options)

    assert distance(run(), run(keeps_graphs=True)) < 1e-12


def test_chunks_change_nothing_for_the_same_masks() -> None:
    model = smooth_net()
    masks = torch.rand(INNER + OUTER, 3, 8, 8).round()

    def masked(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch["x"] * batch["mask"]), batch["y"], reduction="none")

    def run(chunk: int | None) -> dict[str, Tensor | None]:
        model.zero_grad(set_to_none=True)
        batches = []
        for (x, y), mask in zip(
            (images(INNER, 1), images(OUTER, 2)), masks.split([INNER, OUTER]), strict=True
        ):
            batches.append({"x": x, "y": y, "mask": mask})
        Intervention(model, alpha=0.3, chunk=chunk, loss=masked).backward(*batches)
        return stepped_gradients(model)

    assert distance(run(chunk=4), run(chunk=None)) < 1e-12


@pytest.mark.parametrize("h", [(), ("first",), ("first", "last")])
def test_tied_parameters_move_together(h: tuple[str, ...]) -> None:
    model = TiedNet()
    # Named on both sides of the cut, the tensor is θ; named on one side only, it is φ.
    unrolled_h = ("first", "last.bias") if h == ("first", "last") else ()
    expected = reference(model, h=unrolled_h)
    assert distance(gradients(model, h=h, chunk=4), expected) < 1e-10


def test_frozen_parameters_neither_move_nor_get_a_gradient() -> None:
    model = conv_net()
    model.body.requires_grad_(False)
    expected = reference(model)
    assert distance(gradients(model), expected) < 1e-10
    assert model.body.weight.grad is None


class Branches(nn.Module):
    """Has a head for the inner loss alone, one for the outer alone, and one for none."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(192, 5)
        self.inner = nn.Linear(5, 3)
        self.outer = nn.Linear(5, 3)
        self.unread = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.stem(x.flatten(1)))
        head = self.inner if len(x) == INNER else self.outer
        out: Tensor = head(z)
        return out


def test_parameter_without_a_gradient_stays_none() -> None:
    model = Branches()
    expected = reference(model)
    assert expected["unread.weight"] is None
    assert expected["inner.weight"] is not None
    assert distance(gradients(model), expected) < 1e-10


def test_linear_loss_has_no_curvature() -> None:
    model = nn.Linear(192, 3)

    def linear(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return model(batch[0].flatten(1)).sum(dim=1)

    second, first = gradients(model, loss=linear), gradients(model, loss=linear, order=1)
    assert distance(second, first) == 0


def test_scalar_loss_is_exact_in_one_piece() -> None:
    def contrast(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        logits = model(x)
        return F.cross_entropy(logits, y) + torch.cov(logits.T).square().mean()

    model = smooth_net()
    assert distance(gradients(model, loss=contrast), reference(model, loss=contrast)) < 1e-10


@pytest.mark.parametrize("pieces", [{}, {"chunk": 3}], ids=["whole", "chunks"])
def test_loss_may_call_autograd_inside(pieces: dict[str, int]) -> None:
    def penalised(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        x, y = batch
        x = x.detach().requires_grad_()
        loss = F.cross_entropy(model(x), y, reduction="none")
        (slope,) = torch.autograd.grad(loss.sum(), x, create_graph=True)
        return loss + 0.5 * slope.square().flatten(1).sum(dim=1)

    model = smooth_net()
    found = gradients(model, loss=penalised, **pieces)
    assert distance(found, reference(model, loss=penalised)) < 1e-10


@pytest.mark.parametrize("pieces", [{}, {"chunk": 3}], ids=["whole", "chunks"])
def test_attention_has_its_second_derivative(pieces: dict[str, int]) -> None:
    model = AttentionNet()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = reference(model, h=("embed",))
    assert distance(gradients(model, h=("embed",), **pieces), expected) < 1e-10


@pytest.mark.parametrize("pieces", [{}, {"chunk": 3}], ids=["whole", "chunks"])
def test_checkpoints_recompute_at_the_moved_parameters(pieces: dict[str, int]) -> None:
    model = CheckpointNet()
    plain = CheckpointNet()
    plain.load_state_dict(model.state_dict())
    plain.forward = lambda x: plain.head(plain.body(plain.stem(x.flatten(1))))
    assert distance(gradients(model, **pieces), reference(plain)) < 1e-10


def test_heads_of_a_loss_module_are_trained_and_moved() -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.extra = nn.Linear(3, 2)

        def forward(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            x, y = batch
            logits = model(x)
            extra = F.cross_entropy(self.extra(torch.tanh(logits)), y % 2, reduction="none")
            return F.cross_entropy(logits, y, reduction="none") + extra

    model, loss = smooth_net(), TwoHeads()
    expected = reference(model, loss=loss)
    found = gradients(model, loss=loss)
    named = {f"loss.{name}": value.grad for name, value in loss.named_parameters()}
    assert distance({**found, **named}, expected) < 1e-10


def test_autocast_reaches_every_pass() -> None:
    torch.set_default_dtype(torch.float32)
    # Without kinks: rounding would turn a ReLU the other way in one and not in the other.
    model, seen = smooth_net(), set()
    exact = gradients(model)
    model.head.register_forward_hook(lambda *call: seen.add(call[-1].dtype))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        whole, chunked = gradients(model), gradients(model, chunk=4)
    assert seen == {torch.bfloat16}
    assert 0 < distance(whole, exact) < 0.05
    assert distance(chunked, whole) < 0.05


def test_a_deep_network_is_rounded_as_torch_rounds_it() -> None:
    torch.set_default_dtype(torch.float32)
    layers = [nn.Conv2d(64, 64, 3, padding=1) for _ in range(9)]
    model = nn.Sequential(nn.Conv2d(3, 64, 1), *layers, nn.Flatten(), nn.Linear(64 * 16, 3))
    inner, outer = ((torch.randn(m, 3, 4, 4), torch.randint(3, (m,))) for m in (6, 4))
    terms = Intervention(model, alpha=0.1).backward(inner, outer)
    expected = cross_entropy_per_sample(model, inner).mean()
    torch.testing.assert_close(terms.inner_loss, expected.detach(), rtol=1e-7, atol=0)
