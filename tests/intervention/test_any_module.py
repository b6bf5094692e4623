"""Modules and losses that a step could silently get wrong."""

import copy
from collections import UserDict
from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import conv_net, dropout_net, images, norm_net, smooth_net
from tests.support.unrolled import distance, stepped_gradients, unrolled_gradients
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from cicf import ConfigError, DataError, Intervention, cross_entropy_per_sample

pytestmark = pytest.mark.usefixtures("float64")


def stepped(model: nn.Module, **options: object) -> dict[str, Tensor | None]:
    step = Intervention(model, **{"alpha": 0.3, **options})
    step.backward(images(10, 1), images(6, 2))
    return stepped_gradients(model)


def reference(model: nn.Module, **options: object) -> dict[str, Tensor | None]:
    settings = {"alpha": 0.3, "loss": cross_entropy_per_sample, **options}
    return unrolled_gradients(model, images(10, 1), images(6, 2), **settings)


class TwoNames(nn.Module):
    """Registers one module, with a norm in it, under two names, and uses it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(192, 8)
        self.first = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
        self.second = self.first
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.first(torch.tanh(self.stem(x.flatten(1)))))
        out: Tensor = self.head(torch.tanh(self.second(z)))
        return out


class OneName(TwoNames):
    """Is the same network with one name."""

    def __init__(self) -> None:
        super().__init__()
        del self.second

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.first(torch.tanh(self.stem(x.flatten(1)))))
        out: Tensor = self.head(torch.tanh(self.first(z)))
        return out


@pytest.mark.parametrize("h", [(), ("first",), ("second",)])
def test_module_with_two_names_is_one_module(h: tuple[str, ...]) -> None:
    model, plain = TwoNames(), OneName()
    plain.load_state_dict(model.state_dict(), strict=False)
    weight = model.first[0].weight
    found = stepped(model, h=h)
    expected = reference(plain, h=("first",) if h else ())
    assert model.first[0].weight is weight
    assert model.second is model.first
    assert int(model.first[1].num_batches_tracked) == 2
    assert distance({name: found[name] for name in expected}, expected) < 1e-10


def test_loss_module_may_hold_the_model() -> None:
    class Holding(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.held = model
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
            assert model is self.held
            self.calls += 1
            return cross_entropy_per_sample(self.held, batch)

    model = smooth_net()
    expected = reference(model, h=("stem",))
    before = dict(model.named_parameters())
    loss = Holding(model)
    assert distance(stepped(model, h=("stem",), loss=loss), expected) < 1e-10
    assert all(dict(model.named_parameters())[name] is value for name, value in before.items())
    assert float(loss.calls) == 1


def test_names_that_begin_alike_are_not_the_same() -> None:
    model = nn.Sequential()
    model.add_module("stem", nn.Flatten())
    model.add_module("stem2", nn.Linear(192, 4))
    model.add_module("head", nn.Linear(4, 3))
    assert distance(stepped(model, h=("stem",)), reference(model)) < 1e-10


@pytest.mark.usefixtures("untyped")
def test_cut_may_be_any_iterable_of_names() -> None:
    model = conv_net()
    expected = reference(model, h=("stem",))
    assert distance(stepped(model, h=(name for name in ["stem"])), expected) < 1e-10


@pytest.mark.parametrize("options", [{}, {"chunk": 3}, {"measures_before": False}])
def test_forward_that_changes_its_batch_is_refused(options: dict[str, object]) -> None:
    model = nn.Sequential(nn.LeakyReLU(0.3, inplace=True), nn.Flatten(), nn.Linear(192, 3))
    with pytest.raises(DataError, match=r"changes batch\[0\] in place"):
        stepped(model, **options)


def test_loss_may_take_its_batch_apart() -> None:
    def popping(model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        y = batch.pop("y")
        return F.cross_entropy(model(batch["x"]), y, reduction="none")

    model = smooth_net()
    inner, outer = (dict(zip("xy", images(*sizes), strict=True)) for sizes in ((10, 1), (6, 2)))
    Intervention(model, alpha=0.3, loss=popping).backward(inner, outer)
    assert distance(stepped_gradients(model), reference(model)) < 1e-10
    assert set(inner) == {"x", "y"}


def test_batch_of_an_unknown_container_is_named() -> None:
    with pytest.raises(DataError, match="batch is a UserDict"):
        Intervention(conv_net(), alpha=0.1).backward(UserDict(x=images(3)[0]), images(4))


def test_inference_mode_is_refused() -> None:
    step = Intervention(conv_net(), alpha=0.1)
    with torch.inference_mode():
        with pytest.raises(ConfigError, match="inference_mode"):
            step.backward(images(8), images(4))
        with pytest.raises(ConfigError, match="inference_mode"):
            step.theta_dagger([images(8)])


@pytest.mark.parametrize("size", [10, 6])
def test_loss_that_depends_on_nothing_is_refused(size: int) -> None:
    def detached(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        loss = cross_entropy_per_sample(model, batch)
        return loss.detach() if len(batch[0]) == size else loss

    which = "inner" if size == 10 else "outer"
    model = conv_net()
    with pytest.raises(DataError, match=f"the {which} loss depends on no trainable parameter"):
        stepped(model, loss=detached)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.usefixtures("untyped")
def test_loss_that_is_no_tensor_is_refused() -> None:
    with pytest.raises(DataError, match="the loss is a float"):
        stepped(conv_net(), loss=lambda model, batch: 0.5)


class OnceDifferentiable(torch.autograd.Function):
    """Is tanh with a backward that cannot be differentiated."""

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        y = torch.tanh(x)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: object, g: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return g * (1 - y * y)


class Activated(nn.Module):
    """Has an activation of one's own between two linear layers."""

    def __init__(self, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(192, 8), nn.Linear(8, 3)
        self.activation = activation

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.activation(self.body(x.flatten(1))))
        return out


@pytest.mark.parametrize("options", [{}, {"chunk": 3}])
def test_second_derivatives_that_torch_leaves_out_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="marked @once_differentiable"):
        stepped(Activated(OnceDifferentiable.apply), **options)
    stepped(Activated(OnceDifferentiable.apply), order=1, **options)
    normed = nn.Sequential(
        nn.Flatten(),
        nn.utils.parametrizations.weight_norm(nn.Linear(192, 8)),
        nn.Tanh(),
        nn.Linear(8, 3),
    )
    with pytest.raises(ConfigError, match="weight_norm"):
        stepped(normed, **options)


class Checkpointed(nn.Module):
    """Recomputes attention and a norm in the backward pass."""

    def __init__(self, *, use_reentrant: bool = False) -> None:
        super().__init__()
        self.embed = nn.Linear(24, 16)
        self.norm = nn.BatchNorm1d(8)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(16, 3)
        self.use_reentrant = use_reentrant

    def forward(self, x: Tensor) -> Tensor:
        z = self.embed(x.transpose(1, 2).flatten(2))
        z = checkpoint(self.run, z, use_reentrant=self.use_reentrant)
        out: Tensor = self.head(z.mean(dim=1))
        return out

    def run(self, z: Tensor) -> Tensor:
        out: Tensor = self.layer(self.norm(z))
        return out


@pytest.mark.parametrize("options", [{}, {"chunk": 3}, {"keeps_graphs": False}])
def test_checkpoints_recompute_under_the_rules_of_the_pass(options: dict[str, object]) -> None:
    model = Checkpointed()
    plain = copy.deepcopy(model).eval()
    plain.forward = lambda x: plain.head(
        plain.run(plain.embed(x.transpose(1, 2).flatten(2))).mean(dim=1)
    )
    plain.layer.train()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        expected = reference(plain)
    assert distance(stepped(model, batch_norm="frozen", **options), expected) < 1e-10


def test_reentrant_checkpoints_are_refused() -> None:
    with pytest.raises(ConfigError, match="use_reentrant=False"):
        stepped(Checkpointed(use_reentrant=True), batch_norm="frozen")


class Remembering(nn.Module):
    """Keeps buffers of every kind."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)
        self.register_buffer("constant", torch.zeros(1).expand(3))
        self.register_buffer("whole", torch.zeros(4))
        self.register_buffer("part", self.whole[:2])
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.whole += 1
        self.seen += len(x)
        out: Tensor = self.head(x.flatten(1)) + self.constant
        return out


def test_buffers_are_written_as_plain_training_would() -> None:
    model = Remembering()
    stepped(model)
    assert model.whole.tolist() == [1, 1, 1, 1]
    assert float(model.seen) == 6


def test_buffers_that_pieces_disagree_about_are_refused_before_anything_is_written() -> None:
    model = Remembering()
    with pytest.raises(ConfigError, match="depends on the size of the batch or on its pieces"):
        stepped(model, chunk=8)  # six outer samples, in halves of it
    assert float(model.seen) == 0
    assert model.head.weight.grad is None


def test_large_constants_are_copied_once_for_all_inner_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3))
    model.register_buffer("constant", torch.zeros(777))
    copied: list[int] = []
    clone = Tensor.clone

    def counting(self: Tensor, *args: object, **options: object) -> Tensor:
        copied.append(self.numel())
        return clone(self, *args, **options)

    monkeypatch.setattr(Tensor, "clone", counting)
    stepped(model, chunk=1)
    inner, outer_before, outer_pieces = 1, 1, 6
    assert copied.count(777) == inner + outer_before + outer_pieces


def test_pieces_disagree_also_when_the_first_leaves_a_buffer_alone() -> None:
    class Late(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(192, 3)
            self.register_buffer("small", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            if len(x) < 4:
                self.small += 1
            out: Tensor = self.head(x.flatten(1))
            return out

    with pytest.raises(ConfigError, match="depends on the size of the batch or on its pieces"):
        stepped(Late(), chunk=8)


class Recurrent(nn.Module):
    """Keeps its weights in a list of its own, as torch's recurrent layers do."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Linear(24, 6), nn.GRU(6, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        steps = self.embed(x.transpose(1, 2).flatten(2)).transpose(0, 1)
        out: Tensor = self.head(self.rnn(steps)[0][-1])
        return out


@pytest.mark.parametrize("options", [{}, {"chunk": 3}])
def test_recurrent_layers_move_with_their_weights(options: dict[str, object]) -> None:
    model, epsilon = Recurrent(), 1e-5
    found = stepped(model, h=("embed",), **options)["rnn.weight_hh_l0"]
    weight, direction = model.rnn.weight_hh_l0, torch.randn(15, 5)

    def loss() -> float:
        (x, y), (x_outer, y_outer) = images(10, 1), images(6, 2)
        moving = [*model.rnn.parameters(), *model.head.parameters()]
        g = torch.autograd.grad(F.cross_entropy(model(x), y), moving)
        moved = copy.deepcopy(model)
        with torch.no_grad():
            for p, slope in zip(
                [*moved.rnn.parameters(), *moved.head.parameters()], g, strict=True
            ):
                p -= 0.3 * slope
        return F.cross_entropy(moved(x_outer), y_outer).item()

    values = []
    for sign in (1, -2):
        with torch.no_grad():
            weight += sign * epsilon * direction
        values.append(loss())
    assert float((found * direction).sum()) == pytest.approx(
        (values[0] - values[1]) / (2 * epsilon), rel=1e-6
    )


def test_instance_norm_tracks_the_whole_outer_batch() -> None:
    def build() -> nn.Sequential:
        norm = nn.InstanceNorm2d(4, track_running_stats=True)
        return nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), norm, nn.Flatten(), nn.Linear(36, 3))

    model, plain = build(), build()
    plain.load_state_dict(model.state_dict())
    plain[1](plain[0](images(6, 2)[0]))
    stepped(model, chunk=2, h=("0",))
    torch.testing.assert_close(model[1].running_mean, plain[1].running_mean)


def test_norm_by_batch_statistics_alone_is_not_cut() -> None:
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2), norm, nn.Flatten(), nn.Linear(36, 3)).eval()
    with pytest.raises(ConfigError, match="chunk=2 takes the batch apart"):
        stepped(model, chunk=2)


def test_parameters_kept_out_of_sight_are_refused() -> None:
    model = smooth_net()
    kept = list(model.parameters())

    def penalised(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        penalty = sum(parameter.square().sum() for parameter in kept)
        return cross_entropy_per_sample(model, batch) + 0.1 * penalty

    with pytest.raises(ConfigError, match="by a reference that the step cannot see"):
        stepped(model, loss=penalised)

    def seen(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        penalty = sum(parameter.square().sum() for parameter in model.parameters())
        return cross_entropy_per_sample(model, batch) + 0.1 * penalty

    assert distance(stepped(model, loss=seen), reference(model, loss=seen)) < 1e-10


def test_sparse_embeddings_get_a_dense_gradient() -> None:
    class Embedded(nn.Module):
        def __init__(self, *, sparse: bool) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(10, 4, sparse=sparse), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.head(
                torch.tanh(self.table((x.flatten(1)[:, :5] > 0).long()).mean(1))
            )
            return out

    model, dense = Embedded(sparse=True), Embedded(sparse=False)
    dense.load_state_dict(model.state_dict())
    assert distance(stepped(model, order=1), stepped(dense, order=1)) < 1e-12


@pytest.mark.parametrize("wrap", [nn.DataParallel, partial(torch.compile, backend="eager")])
def test_wrapped_submodules_are_refused(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = conv_net()
    model.body = wrap(model.body)
    with pytest.raises(ConfigError, match=r"wrapped in DataParallel|compiled"):
        Intervention(model, alpha=0.1)


def test_order_one_and_scaled_losses_are_reported_as_they_are() -> None:
    model = smooth_net()
    assert not Intervention(model, alpha=0.3, order=1).backward(images(8), images(4)).is_exact
    plain = Intervention(model, alpha=0.3).backward(images(8), images(4))
    scaled = Intervention(model, alpha=0.3).backward(images(8), images(4), scale=64.0)
    torch.testing.assert_close(scaled.outer_loss_before, plain.outer_loss_before)


@pytest.mark.parametrize("policy", ["frozen", "running"])
def test_no_pass_sees_more_than_a_chunk_of_what_can_be_cut(policy: str) -> None:
    model, sizes = norm_net(), []
    model.stem.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    step = Intervention(model, alpha=0.3, chunk=4, batch_norm=policy)
    step.backward(images(10, 1), images(6, 2))
    outer = [2, 2, 2] if policy == "frozen" else [6]
    assert sizes == [4, 4, 2, *outer, *outer, 4, 4]  # the graph of the last piece is kept
    sizes.clear()
    step.theta_dagger([images(10, 1)])
    assert sizes == [4, 4, 2]


def test_alpha_zero_makes_two_passes_and_no_draws() -> None:
    model, calls = dropout_net(), []
    model.stem.register_forward_pre_hook(lambda *_: calls.append(1))
    erm = copy.deepcopy(model)
    state = torch.get_rng_state()
    found = stepped(model, alpha=0.0, curvature=0.5, measures_before=False, chunk=20)
    assert len(calls) == 2
    torch.set_rng_state(state)
    x, y = images(6, 2)
    F.cross_entropy(erm(x), y).backward()
    assert distance(found, stepped_gradients(erm)) < 1e-12


def test_scalar_losses_weigh_batches_by_their_size_in_theta_dagger() -> None:
    model = smooth_net()

    def scalar(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return F.cross_entropy(model(batch[0]), batch[1])

    x, y = images(9)
    batches = [(x[:7], y[:7]), (x[7:], y[7:])]
    per_sample = Intervention(model, alpha=0.3).theta_dagger(batches)
    found = Intervention(model, alpha=0.3, loss=scalar).theta_dagger(batches)
    torch.testing.assert_close(found, per_sample)


class ViewInCheckpoint(nn.Module):
    """Takes a view of a convolution's output in a part that is computed again in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3)
        self.head = nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        return checkpoint(self.block, self.stem(x), use_reentrant=False)

    def block(self, z: Tensor) -> Tensor:
        return self.head(self.body(z).view(len(z), -1))


@pytest.mark.parametrize("order", [1, 2])
def test_views_within_checkpoints_are_left_to_torch(order: int) -> None:
    model, plain = ViewInCheckpoint(), ViewInCheckpoint()
    plain.load_state_dict(model.state_dict())
    plain.forward = lambda x: plain.block(plain.stem(x))
    assert distance(stepped(model, order=order), stepped(plain, order=order)) < 1e-12
