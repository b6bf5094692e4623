"""MASF: its losses against loops, its gradients against plain autograd and finite differences."""

import copy
import math
from collections.abc import Mapping

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    CLASSES,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    gradients_of,
    layout,
    pictures,
)
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cicf import DataError
from cicf.core.draw import Draw, Samples
from cicf.methods import Masf, MasfConfig
from cicf.models.split import SplitModel
from cicf.training import OptimConfig
from cicf.training.updates import Updates

SMALL = {"hidden_size": 6, "embedding_size": 4}
FAR = {**SMALL, "inner_lr": 0.5, "local_weight": 0.1}
"""A virtual step that is felt, and a triplet loss that is."""


def masf(model: SplitModel, num_domains: int = 3, **options: object) -> tuple[Masf, Draw]:
    data = pictures(num_domains)
    method = built(MasfConfig.model_validate({**SMALL, **options}), model, data)
    assert isinstance(method, Masf)
    return method, draw_for(method, data, outer=8 * num_domains)


def turn(method: Masf, draw: Draw, number: int, *, seed: int = 0) -> Mapping[str, Tensor]:
    """Return what one turn of a new step that begins with this seed leaves in `.grad`."""
    method.after_step()
    torch.manual_seed(seed)
    return gradients_of(method, draw, turn=number)


def held_out(draw: Draw, seed: int) -> int:
    """Return the domain that a step which begins with this seed holds out."""
    torch.manual_seed(seed)
    domains = sorted(set(draw.outer.domain.tolist()))
    return domains[int(torch.randint(len(domains), ()))]


def of_domain(batch: Samples, domain: int) -> Samples:
    return Samples(*(field[batch.domain == domain] for field in batch))


def task_loss(model: nn.Module, batch: Samples, test: int) -> Tensor:
    """Return the mean over the other domains of the cross-entropy of each."""
    others = [d for d in sorted(set(batch.domain.tolist())) if d != test]
    parts = [of_domain(batch, d) for d in others]
    losses = [F.cross_entropy(model(part.x), part.y) for part in parts]
    return sum(losses[1:], losses[0]) / len(losses)


def stepped(model: SplitModel, batch: Samples, test: int, *, lr: float, clip: float) -> SplitModel:
    """Return a copy of the network, each tensor moved along its gradient, clipped."""
    moved = copy.deepcopy(model)
    moved.zero_grad()
    task_loss(moved, batch, test).backward()
    with torch.no_grad():
        for parameter in moved.parameters():
            length = float(parameter.grad.norm())
            parameter -= lr * parameter.grad * min(1.0, clip / length)
    moved.zero_grad()
    return moved


def features_of(model: SplitModel, x: Tensor) -> Tensor:
    net = model.network
    return net.flatten(net.block3(net.block2(net.block1(x))))


def global_by_loops(logits: np.ndarray, batch: Samples, test: int) -> float:
    """Return the mean over pairs of domains of the symmetric divergence, τ = 2."""

    def row(domain: int, label: int) -> np.ndarray | None:
        own = [
            logits[i]
            for i in range(len(logits))
            if int(batch.domain[i]) == domain and int(batch.y[i]) == label
        ]
        if not own:
            return None
        powers = np.exp(np.mean(own, axis=0) / 2.0)
        return powers / powers.sum()

    pairs = []
    for other in sorted(set(batch.domain.tolist()) - {test}):
        total = 0.0
        for label in range(CLASSES):
            p, q = row(test, label), row(other, label)
            if p is not None and q is not None:
                total += (np.sum(p * np.log(p / q)) + np.sum(q * np.log(q / p))) / 2
        pairs.append(total / CLASSES)
    return float(np.mean(pairs))


def local_by_loops(z: np.ndarray, y: list[int], margin: float) -> float:
    """Return the mean over pairs of a class of [m + D_ap − D_an]₊ with semi-hard negatives."""

    def squared(a: int, b: int) -> float:
        return float(np.sum((z[a] - z[b]) ** 2))

    places = range(len(y))
    losses = []
    for a in places:
        negatives = [squared(a, n) for n in places if y[n] != y[a]]
        for p in places:
            if p == a or y[p] != y[a] or not negatives:
                continue
            beyond = [each for each in negatives if each > squared(a, p)]
            chosen = min(beyond) if beyond else max(negatives)
            losses.append(max(0.0, margin + squared(a, p) - chosen))
    return float(np.mean(losses)) if losses else 0.0


def local_places(batch: Samples, share: float) -> list[int]:
    found: list[int] = []
    for domain in sorted(set(batch.domain.tolist())):
        own = [i for i, d in enumerate(batch.domain.tolist()) if d == domain]
        found += own[: max(1, int(share * len(own)))]
    return found


def embedded(method: Masf, features: Tensor) -> np.ndarray:
    """Return the embedding by its formula, with leaky ReLUs of slope 0.2."""
    z = features.detach().numpy()
    for layer in (method.embedding[0], method.embedding[2]):
        z = z @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
        z = np.where(z > 0, z, 0.2 * z)
    return z


def losses_by_loops(method: Masf, moved: SplitModel, batch: Samples, test: int) -> dict[str, float]:
    with torch.no_grad():
        logits, features = moved(batch.x).numpy(), features_of(moved, batch.x)
    places = local_places(batch, 1 / 3)
    y = [int(batch.y[i]) for i in places]
    return {
        "global_loss": global_by_loops(logits, batch, test),
        "local_loss": local_by_loops(embedded(method, features[places]), y, 10.0),
    }


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("num_domains", [2, 3, 4])
@pytest.mark.parametrize("clip", [2.0, 0.05])
def test_the_losses_are_those_of_loops_where_the_virtual_step_leads(
    clip: float, num_domains: int
) -> None:
    model = layout()
    method, draw = masf(model, num_domains, **FAR, clip=clip)
    for seed in range(3):
        method.after_step()
        torch.manual_seed(seed)
        logged = method.backward(draw)
        test = held_out(draw, seed)
        moved = stepped(model, draw.outer, test, lr=0.5, clip=clip)
        expected = losses_by_loops(method, moved, draw.outer, test)
        expected["task_loss"] = float(task_loss(model, draw.outer, test).detach())
        expected["loss"] = (
            expected["task_loss"] + expected["global_loss"] + 0.1 * expected["local_loss"]
        )
        assert expected["local_loss"] > 0
        assert set(logged) == set(expected)
        for name, value in expected.items():
            assert float(logged[name]) == pytest.approx(value, abs=1e-10)


@pytest.mark.usefixtures("float64")
def test_the_task_turn_is_the_mean_cross_entropy_of_meta_train() -> None:
    model = layout()
    method, draw = masf(model)
    for seed in range(3):
        found = turn(method, draw, 0, seed=seed)
        test = held_out(draw, seed)
        seen = Samples(*(field[draw.outer.domain != test] for field in draw.outer))
        assert_same(found, cross_entropy_gradients(model, seen), atol=1e-12)


def meta_slope(
    method: Masf,
    model: SplitModel,
    draw: Draw,
    direction: Mapping[str, Tensor],
    *,
    order: int,
    clip: float,
) -> float:
    """Return the slope of L_g + 0.1 L_l along a direction by central differences of loops.

    At order 1 the virtual step stays as it is while θ moves.
    """
    test, batch = held_out(draw, 0), draw.outer
    home = stepped(model, batch, test, lr=0.5, clip=clip)

    def objective(t: float) -> float:
        other = copy.deepcopy(model if order == 2 else home)
        with torch.no_grad():
            for name, parameter in other.named_parameters():
                parameter += t * direction[name]
        if order == 2:
            other = stepped(other, batch, test, lr=0.5, clip=clip)
        found = losses_by_loops(method, other, batch, test)
        return found["global_loss"] + 0.1 * found["local_loss"]

    return (objective(1e-5) - objective(-1e-5)) / 2e-5


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("clip", [math.inf, 0.05])
def test_the_alignment_turn_is_the_slope_of_the_losses_by_loops(clip: float, order: int) -> None:
    model = layout()
    # Weights so small that only the gradient of the virtual step is clipped.
    weights = {"global_weight": 1e-3, "local_weight": 1e-4}
    method, draw = masf(model, **{**FAR, **weights}, order=order, clip=clip)
    task, found = turn(method, draw, 0), turn(method, draw, 1)
    assert max(g.norm() for g in task.values()) > 0.05 > max(g.norm() for g in found.values())
    direction = {name: torch.randn_like(p) for name, p in model.named_parameters()}
    slope = 1e3 * sum(float((found[name] * d).sum()) for name, d in direction.items())
    expected = meta_slope(method, model, draw, direction, order=order, clip=clip)
    assert slope == pytest.approx(expected, rel=1e-6)


@pytest.mark.usefixtures("float64")
def test_the_two_orders_differ() -> None:
    model = layout()
    one, two = (turn(*masf(model, **FAR, order=order), 1) for order in (1, 2))
    assert max(float((one[name] - two[name]).abs().max()) for name in one) > 1e-4


@pytest.mark.usefixtures("float64")
def test_the_embedding_turn_is_the_slope_of_the_triplet_loss() -> None:
    model = layout()
    method, draw = masf(model, **FAR, embedding_weight=0.3)
    method.zero_grad()
    turn(method, draw, 2)
    own = list(method.embedding.parameters())
    direction = [torch.randn_like(p) for p in own]
    slope = sum(float((p.grad * d).sum()) for p, d in zip(own, direction, strict=True))
    test = held_out(draw, 0)
    moved = stepped(model, draw.outer, test, lr=0.5, clip=2.0)

    def objective(t: float) -> float:
        other = copy.deepcopy(method)
        with torch.no_grad():
            for parameter, way in zip(other.embedding.parameters(), direction, strict=True):
                parameter += t * way
        return 0.3 * losses_by_loops(other, moved, draw.outer, test)["local_loss"]

    assert slope == pytest.approx((objective(1e-6) - objective(-1e-6)) / 2e-6, rel=1e-6)


@pytest.mark.usefixtures("float64")
def test_each_tensor_of_the_alignment_is_clipped_by_itself() -> None:
    model = layout()
    whole, cut = (
        turn(*masf(model, inner_lr=0.0, local_weight=0.1, clip=clip), 1)
        for clip in (math.inf, 1e-3)
    )
    lengths = {name: float(g.norm()) for name, g in whole.items()}
    assert min(lengths.values()) < 1e-3 < max(lengths.values())
    expected = {name: g * min(1.0, 1e-3 / lengths[name]) for name, g in whole.items()}
    assert_same(cut, expected, atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_weights_of_zero_leave_the_task_alone() -> None:
    model = layout()
    method, draw = masf(model, global_weight=0.0, local_weight=0.0, updates="joint")
    found = turn(method, draw, 0)
    test = held_out(draw, 0)
    seen = Samples(*(field[draw.outer.domain != test] for field in draw.outer))
    assert_same(found, cross_entropy_gradients(model, seen), atol=1e-12)


@pytest.mark.usefixtures("float64")
def test_one_update_of_the_network_has_the_sum_of_both_gradients() -> None:
    model = layout()
    method, draw = masf(model, **FAR)
    joint, _ = masf(model, **FAR, updates="joint")
    task, alignment, both = turn(method, draw, 0), turn(method, draw, 1), turn(joint, draw, 0)
    assert_same(both, {name: task[name] + alignment[name] for name in task}, atol=1e-12)
    assert [each.name for each in joint.turns] == ["network", "embedding"]
    assert [each.name for each in method.turns] == ["task", "alignment", "embedding"]


@pytest.mark.usefixtures("float64")
def test_all_turns_of_a_step_are_taken_at_the_same_weights() -> None:
    model = layout()
    start = copy.deepcopy(model)
    method, draw = masf(model, **FAR)
    torch.manual_seed(0)
    optim = OptimConfig(lr=0.2, momentum=0.0, weight_decay=0.0, schedule="constant", clip=1e9)
    Updates(method, optim, epochs=1).take(draw, step=1, kept=lambda: "")
    joint, _ = masf(start, **FAR, updates="joint")
    g = turn(joint, draw, 0)
    expected = {name: p.detach() - 0.2 * g[name] for name, p in start.named_parameters()}
    assert_same({n: p.detach() for n, p in model.named_parameters()}, expected, atol=1e-12)


def test_a_step_holds_one_domain_out_in_all_its_turns_and_the_next_may_hold_another() -> None:
    model = layout()
    method, draw = masf(model, **FAR)
    for seed in range(6):
        method.after_step()
        torch.manual_seed(seed)
        first = gradients_of(method, draw, turn=1)
        torch.rand(7)
        assert_same(gradients_of(method, draw, turn=1), first, atol=0)
        assert_same(turn(method, draw, 1, seed=seed), first, atol=0)
    assert len({held_out(draw, seed) for seed in range(6)}) == 3
    losses = {float(turn(method, draw, 0, seed=seed)["network.head.bias"][0]) for seed in range(6)}
    assert len(losses) == 3


def test_gradients_add_up_and_nothing_moves() -> None:
    model = layout("resnet")
    method, draw = masf(model, **FAR)
    before = copy.deepcopy(dict(model.named_parameters()))
    once = gradients_of(method, draw)
    method.backward(draw)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, 2 * once[name])
        assert torch.equal(parameter, before[name])


@pytest.mark.usefixtures("float64")
def test_a_class_that_one_domain_lacks_is_left_out_of_its_alignment() -> None:
    model = layout()
    method, draw = masf(model, **FAR)
    outer = draw.outer
    keep = ~((outer.domain == 1) & (outer.y == 2))
    lacking = draw._replace(outer=Samples(*(field[keep] for field in outer)))
    method.after_step()
    torch.manual_seed(0)
    logged = method.backward(lacking)
    test = held_out(lacking, 0)
    moved = stepped(model, lacking.outer, test, lr=0.5, clip=2.0)
    expected = losses_by_loops(method, moved, lacking.outer, test)
    for name, value in expected.items():
        assert float(logged[name]) == pytest.approx(value, abs=1e-10)


def test_a_batch_of_a_single_class_has_no_triplets() -> None:
    model = layout()
    method, draw = masf(model)
    alone = Samples(*(field[draw.outer.y == 0] for field in draw.outer))
    logged = method.backward(draw._replace(outer=alone))
    assert logged["local_loss"] == 0
    assert all(math.isfinite(float(value)) for value in logged.values())


def test_a_batch_of_one_domain_is_refused_with_a_sentence() -> None:
    method, draw = masf(layout())
    alone = of_domain(draw.outer, 0)
    with pytest.raises(DataError, match="train on at least 2 source domains"):
        method.backward(draw._replace(outer=alone))


def test_statistics_are_those_of_the_task_alone() -> None:
    model = layout("resnet")
    twin = copy.deepcopy(model)
    method, draw = masf(model, **FAR)
    torch.manual_seed(0)
    method.backward(draw)
    twin.train()
    twin(draw.outer.x[draw.outer.domain != held_out(draw, 0)])
    norms = [
        [part for part in each.modules() if isinstance(part, _BatchNorm)] for each in (model, twin)
    ]
    for found, expected in zip(*norms, strict=True):
        torch.testing.assert_close(found.running_mean, expected.running_mean)
        assert int(found.num_batches_tracked) == 1


@pytest.mark.parametrize(("share", "count"), [(1 / 3, 2), (1.0, 8), (0.01, 1)])
def test_a_part_of_each_domain_has_triplets(share: float, count: int) -> None:
    method, draw = masf(layout(), local_share=share)
    seen: list[int] = []
    method.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(len(inputs[0])))
    method.backward(draw)
    assert seen == [3 * count]


def test_the_embedding_has_the_widths_that_are_asked_for_and_fits_the_features() -> None:
    method, _ = masf(layout("alexnet"), hidden_size=5, embedding_size=2)
    assert [tuple(p.shape) for p in method.embedding.parameters()] == [(5, 8), (5,), (2, 5), (2,)]


def test_the_defaults_are_those_of_the_authors_code() -> None:
    assert MasfConfig().model_dump() == {
        "name": "masf",
        "deploy": "theta",
        "inner_lr": 1e-5,
        "order": 1,
        "clip": 2.0,
        "global_weight": 1.0,
        "temperature": 2.0,
        "local_weight": 0.005,
        "embedding_weight": 0.005,
        "margin": 10.0,
        "local_share": 1 / 3,
        "hidden_size": 1024,
        "embedding_size": 256,
        "updates": "separate",
    }


@pytest.mark.parametrize(
    "options",
    [
        {"inner_lr": -1.0},
        {"temperature": 0.0},
        {"clip": 0.0},
        {"local_share": 0.0},
        {"local_share": 1.5},
        {"margin": -1.0},
        {"hidden_size": 0},
        {"updates": "both"},
        {"deploy": "theta_dagger"},
        {"order": 3},
    ],
    ids=str,
)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MasfConfig.model_validate(options)
