"""Fish: the walk against loops by hand, and what it comes to when steps are short."""

import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import CLASSES, SIDE, built, draw_for, layout, moved_by, pictures
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from cicf.core.draw import Draw, Samples
from cicf.methods import FishConfig
from cicf.models.split import SplitModel
from cicf.training import OptimConfig
from cicf.training.updates import Updates


def plain(lr: float) -> OptimConfig:
    return OptimConfig(lr=lr, momentum=0.0, weight_decay=0.0, schedule="constant")


def linear() -> SplitModel:
    """Return softmax regression on the mean colour of quarters of an image."""
    torch.manual_seed(3)
    parts = nn.AvgPool2d(SIDE // 2), nn.Flatten(), nn.Linear(12, CLASSES)
    return SplitModel(nn.Sequential(*parts), cut="input", before=())


def draw_of(num_domains: int) -> Draw:
    data = pictures(num_domains)
    return draw_for(built(FishConfig(), layout(), data), data)


def blocks(batch: Samples) -> list[Samples]:
    """Return the batch of each domain, in the order of their numbers."""
    return [
        Samples(*(field[batch.domain == k] for field in batch))
        for k in sorted(set(batch.domain.tolist()))
    ]


def seeds_by_order(num_domains: int) -> dict[tuple[int, ...], int]:
    """Return a seed for every order of the domains that a random permutation can have."""
    found: dict[tuple[int, ...], int] = {}
    for seed in range(200):
        torch.manual_seed(seed)
        found.setdefault(tuple(torch.randperm(num_domains).tolist()), seed)
    assert found.keys() == set(itertools.permutations(range(num_domains)))
    return found


def moved_in_order(draw: Draw, seed: int, lr: float, config: FishConfig) -> Tensor:
    """Return how far a step moves the network, its order given by a seed."""
    method = built(config, layout(), pictures(3))
    before = torch.cat([each.detach().flatten().clone() for each in method.model.parameters()])
    method.lr = lr
    torch.manual_seed(seed)
    method.backward(draw)
    after = torch.cat([each.detach().flatten() for each in method.model.parameters()])
    return after - before


def softmax_regression_walk(
    weight: np.ndarray,
    bias: np.ndarray,
    batches: list[tuple[np.ndarray, np.ndarray]],
    *,
    lr: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights after one step on each batch, by the closed form of the gradient."""
    for z, y in batches:
        scores = z @ weight.T + bias
        odds = np.exp(scores - scores.max(axis=1, keepdims=True))
        error = odds / odds.sum(axis=1, keepdims=True) - np.eye(CLASSES)[y]
        weight = weight - lr * error.T @ z / len(y)
        bias = bias - lr * error.mean(axis=0)
    return weight, bias


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("num_domains", [1, 2, 3])
def test_a_step_is_part_of_the_walk_of_softmax_regression(num_domains: int) -> None:
    draw = draw_of(num_domains)
    for order, seed in seeds_by_order(num_domains).items():
        model = linear()
        head = model.network[2]
        start = head.weight.detach().numpy().copy(), head.bias.detach().numpy().copy()
        features = [model.network[:2](each.x).numpy() for each in blocks(draw.outer)]
        labels = [each.y.numpy() for each in blocks(draw.outer)]
        ways = [(features[k], labels[k]) for k in order]
        end = softmax_regression_walk(*start, ways, lr=2.0 * 0.3)

        method = built(FishConfig(epsilon=0.2, inner_lr=2.0), model, pictures(num_domains))
        method.lr = 0.3
        torch.manual_seed(seed)
        method.backward(draw)
        for found, a, b in zip((head.weight, head.bias), start, end, strict=True):
            np.testing.assert_allclose(found.detach().numpy(), a + 0.2 * (b - a), atol=1e-12)
            assert np.abs(b - a).max() > 1e-3


@pytest.mark.usefixtures("float64")
def test_a_step_is_part_of_the_walk_that_an_optimiser_takes() -> None:
    draw = draw_of(3)
    for order, seed in seeds_by_order(3).items():
        walker = layout()
        theta = torch.cat([each.detach().flatten().clone() for each in walker.parameters()])
        optimizer = torch.optim.SGD(walker.parameters(), lr=0.7)
        for k in order:
            optimizer.zero_grad()
            batch = blocks(draw.outer)[k]
            F.cross_entropy(walker(batch.x), batch.y).backward()
            optimizer.step()
        end = torch.cat([each.detach().flatten() for each in walker.parameters()])
        found = moved_in_order(draw, seed, 0.7, FishConfig(epsilon=0.25))
        torch.testing.assert_close(found, 0.25 * (end - theta), rtol=0, atol=1e-12)


def domain_gradients(model: SplitModel, draw: Draw) -> list[Tensor]:
    """Return g_k, each in one row and with its graph."""
    rows = []
    for batch in blocks(draw.outer):
        loss = F.cross_entropy(model(batch.x), batch.y)
        slopes = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
        rows.append(torch.cat([slope.flatten() for slope in slopes]))
    return rows


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("num_domains", [2, 3])
def test_beyond_erm_the_mean_over_orders_climbs_the_products_of_domain_gradients(
    num_domains: int,
) -> None:
    # After steps in an order π, θ̃ − θ = −η Σ g_k + η² Σ_{i before j} H_j g_i + O(η³). Over all
    # orders i is before j half of the time, and H_j g_i + H_i g_j = ∇(g_i · g_j), so that the mean
    # is −η Σ g_k + η²/2 ∇ Σ_{i<j} g_i · g_j + O(η³).
    draw, model = draw_of(num_domains), layout()
    rows = domain_gradients(model, draw)
    products = torch.stack([a @ b for a, b in itertools.combinations(rows, 2)]).sum()
    slopes = torch.autograd.grad(products, list(model.parameters()), retain_graph=True)
    climb = torch.cat([slope.flatten() for slope in slopes])
    total = torch.stack(rows).sum(0).detach()
    config, seeds = FishConfig(epsilon=0.5), seeds_by_order(num_domains).values()

    def beyond(lr: float) -> Tensor:
        moved = torch.stack([moved_in_order(draw, seed, lr, config) for seed in seeds]).mean(0)
        return (moved / config.epsilon + lr * total) / (lr**2 / 2)

    errors = [(beyond(lr) - climb).norm() / climb.norm() for lr in (2e-3, 1e-3)]
    assert errors[1] < 0.01
    assert errors[0] / errors[1] == pytest.approx(2, abs=0.1)
    # What is left is of first order in η, so that two rates together leave less.
    better = 2 * beyond(1e-3) - beyond(2e-3)
    assert (better - climb).norm() / climb.norm() < 1e-4
    assert torch.cosine_similarity(better, total, dim=0) < 0.9


@pytest.mark.usefixtures("float64")
def test_with_one_domain_a_step_is_erm_at_a_lower_rate() -> None:
    data = pictures(1)
    method = built(FishConfig(epsilon=0.3), layout(), data)
    draw = draw_for(method, data)
    model = layout()
    loss = F.cross_entropy(model(draw.outer.x), draw.outer.y)
    slopes = torch.autograd.grad(loss, list(model.parameters()))
    g = torch.cat([slope.flatten() for slope in slopes])
    found = moved_by(method, draw, optim=plain(0.2))
    torch.testing.assert_close(found, -0.3 * 0.2 * g, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("epsilon", [0.25, 1.0])
def test_statistics_of_batch_norm_go_the_same_part_of_the_way(epsilon: float) -> None:
    data = pictures(3)
    model = layout("resnet")
    method = built(FishConfig(epsilon=epsilon), model, data)
    draw, walker = draw_for(method, data), layout("resnet")
    torch.manual_seed(1)
    order = torch.randperm(3).tolist()
    optimizer = torch.optim.SGD(walker.parameters(), lr=0.1)
    for k in order:
        optimizer.zero_grad()
        batch = blocks(draw.outer)[k]
        F.cross_entropy(walker(batch.x), batch.y).backward()
        optimizer.step()
    start = dict(layout("resnet").named_buffers())
    moved_by(method, draw, optim=plain(0.1))
    for name, found in model.named_buffers():
        end = dict(walker.named_buffers())[name]
        if not found.is_floating_point():
            assert found == 3
            continue
        expected = start[name] + epsilon * (end - start[name])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_orders_are_random_and_follow_the_seed() -> None:
    draw = draw_of(3)
    moves = [moved_in_order(draw, seed, 0.7, FishConfig()) for seed in (0, 0, 1, 2, 3, 4, 5)]
    assert torch.equal(moves[0], moves[1])
    assert any(not torch.equal(moves[0], other) for other in moves[2:])


def test_domains_are_told_apart_by_their_numbers_and_not_by_their_places() -> None:
    draw = draw_of(3)
    mixed = torch.randperm(len(draw.outer.y))
    shuffled = draw._replace(outer=Samples(*(field[mixed] for field in draw.outer)))
    found, usual = (moved_in_order(each, 0, 0.7, FishConfig()) for each in (shuffled, draw))
    torch.testing.assert_close(found, usual, rtol=0, atol=1e-6)


def test_momentum_and_decay_of_the_run_play_no_part() -> None:
    data = pictures(3)
    moves = []
    for optim in (plain(0.1), OptimConfig(lr=0.1, momentum=0.9, weight_decay=0.1)):
        method = built(FishConfig(), layout(), data)
        updates = Updates(method, optim, epochs=1)
        for step in range(2):
            draw = draw_for(method, data, step=step)
            torch.manual_seed(step)
            updates.take(draw, step=1, kept=lambda: "nothing was kept")
        moves.append(torch.cat([each.detach().flatten() for each in method.model.parameters()]))
    assert torch.equal(*moves)


def test_what_is_frozen_stays_and_gradients_are_left_alone() -> None:
    model = layout("resnet")
    model.network.conv1.weight.requires_grad_(False)
    first = model.network.conv1.weight.clone()
    method = built(FishConfig(), model, pictures(3))
    moved_by(method, draw_of(3), optim=plain(0.1))
    assert torch.equal(model.network.conv1.weight, first)
    assert all(each.grad is None for each in model.parameters())


@pytest.mark.usefixtures("float64")
def test_it_logs_the_mean_loss_and_how_gradients_agree() -> None:
    draw, model = draw_of(3), layout()
    rows = [row.detach() for row in domain_gradients(model, draw)]
    pairs = [float(a @ b) for a, b in itertools.combinations(rows, 2)]
    losses = [F.cross_entropy(model(each.x), each.y).item() for each in blocks(draw.outer)]
    method = built(FishConfig(), layout(), pictures(3))
    method.lr = 1e-9
    terms = method.backward(draw)
    assert float(terms["gradient_product"]) == pytest.approx(sum(pairs) / 3, rel=1e-6)
    assert float(terms["loss"]) == pytest.approx(sum(losses) / 3, rel=1e-6)


def test_a_module_that_takes_no_part_stays_where_it_is() -> None:
    model = layout()
    model.network.unused = nn.Linear(2, 2)
    method = built(FishConfig(), model, pictures(2))
    before = model.network.unused.weight.clone()
    moved_by(method, draw_of(2), optim=plain(0.1))
    assert torch.equal(model.network.unused.weight, before)


def test_the_network_stays_in_training_mode() -> None:
    model = layout("resnet")
    moved_by(built(FishConfig(), model, pictures(3)), draw_of(3))
    assert all(part.training for part in model.modules() if isinstance(part, _BatchNorm))


@pytest.mark.parametrize("options", [{"epsilon": 0.0}, {"epsilon": 1.5}, {"inner_lr": 0.0}])
def test_options_without_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        FishConfig.model_validate(options)
