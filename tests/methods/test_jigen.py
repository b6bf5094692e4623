"""JiGen against loops in NumPy that make the same draws."""

import copy
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.composed import gap_inside_cicf
from tests.support.methods import (
    LAYOUTS,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    given_for,
    gradients_of,
    layout,
    pictures,
    samples,
)
from tests.support.slopes import assert_slopes
from torch import Tensor

from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.methods import CicfConfig, Jigen, JigenConfig
from cicf.methods.jigen import permutations


def batch_of(size: int = 12, *, seed: int = 0) -> Samples:
    data = pictures(3)
    places = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))[:size]
    return samples(data, places)


def method_with(model_seed: int = 0, **options: object) -> Jigen:
    method = JigenConfig(**options).build(given_for(layout(seed=model_seed), pictures(3)))
    method.model.train()
    return method


def orders_drawn(size: int, *, ordered: float, count: int) -> list[int]:
    """Return the orders that the random state gives: 0, or one of the others."""
    chances, others = torch.rand(size).tolist(), torch.randint(1, count + 1, (size,)).tolist()
    return [0 if chance < ordered else other for chance, other in zip(chances, others, strict=True)]


def in_order(x: Tensor, orders: list[int], count: int) -> Tensor:
    """Return images of 16 pixels with their tiles of 5 pixels in the order of their label."""
    found = x.clone()
    for image, label in enumerate(orders):
        for place, tile in enumerate(permutations(count + 1)[label].tolist()):
            to_y, to_x = 5 * (place // 3), 5 * (place % 3)
            from_y, from_x = 5 * (tile // 3), 5 * (tile % 3)
            found[image, :, to_y : to_y + 5, to_x : to_x + 5] = x[
                image, :, from_y : from_y + 5, from_x : from_x + 5
            ]
    return found


def cross_entropies(logits: np.ndarray, labels: list[int]) -> np.ndarray:
    return np.array(
        [np.log(np.exp(row).sum()) - row[label] for row, label in zip(logits, labels, strict=True)]
    )


def terms_by_hand(method: Jigen, x: Tensor, y: list[int], orders: list[int]) -> list[np.ndarray]:
    """Return the cross-entropies of class and order, of images that are in their order already."""
    net = method.model.network
    features = net.block3(net.block2(net.block1(x))).flatten(1).detach().numpy()
    return [
        cross_entropies(features @ head.weight.detach().numpy().T + head.bias.detach().numpy(), of)
        for head, of in ((net.head, y), (method.head, orders))
    ]


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize(
    ("weight", "ordered", "count"), [(0.7, 0.9, 30), (2.0, 0.3, 5), (0.5, 0.0, 1)]
)
def test_the_loss_of_each_sample_is_what_loops_give(
    weight: float, ordered: float, count: int
) -> None:
    method = method_with(weight=weight, ordered=ordered, permutations=count)
    batch = batch_of()
    torch.manual_seed(7)
    orders = orders_drawn(12, ordered=ordered, count=count)
    of_class, of_order = terms_by_hand(
        method, in_order(batch.x, orders, count), batch.y.tolist(), orders
    )
    torch.manual_seed(7)
    found = method.loss(method.model, batch).detach().numpy()
    assert any(orders)
    np.testing.assert_allclose(found, of_class + weight * of_order, rtol=0, atol=1e-10)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("ordered", [1.0, 0.5, 0.0])
def test_the_class_may_be_learnt_from_images_in_order_only(ordered: float) -> None:
    method = method_with(only_ordered=True, ordered=ordered)
    batch = batch_of()
    torch.manual_seed(1)
    orders = orders_drawn(12, ordered=ordered, count=30)
    of_class, of_order = terms_by_hand(
        method, in_order(batch.x, orders, 30), batch.y.tolist(), orders
    )
    kept = [term for term, label in zip(of_class, orders, strict=True) if label == 0]
    expected = (sum(kept) / len(kept) if kept else 0.0) + 0.7 * of_order.mean()
    torch.manual_seed(1)
    found = method.loss(method.model, batch)
    assert found.shape == ()
    assert float(found.detach()) == pytest.approx(expected, abs=1e-10)
    assert (len(kept) == 0) == (ordered == 0)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("only_ordered", [False, True])
def test_the_gradient_is_that_of_differences_with_the_same_orders(only_ordered: bool) -> None:
    method = method_with(ordered=0.5, only_ordered=only_ordered)
    batch = batch_of()
    torch.manual_seed(2)
    orders = orders_drawn(12, ordered=0.5, count=30)
    seen = in_order(batch.x, orders, 30)
    torch.manual_seed(2)
    method.loss(method.model, batch).mean().backward()
    trained = method.trained
    assert len(trained) == 10

    def loss() -> float:
        of_class, of_order = terms_by_hand(method, seen, batch.y.tolist(), orders)
        counts = np.array(orders) == 0 if only_ordered else np.full(12, True)
        return float(of_class[counts].mean() + 0.7 * of_order.mean())

    assert_slopes(loss, trained, [p.grad for p in trained])


@pytest.mark.usefixtures("float64")
def test_a_weight_of_zero_is_the_cross_entropy_of_the_images_that_were_seen() -> None:
    method, batch = method_with(weight=0.0, ordered=0.3), batch_of()
    torch.manual_seed(3)
    orders = orders_drawn(12, ordered=0.3, count=30)
    seen = batch._replace(x=in_order(batch.x, orders, 30))
    torch.manual_seed(3)
    found = gradients_of(method, Draw(batch, None))
    assert_same(found, cross_entropy_gradients(method.model, seen), atol=1e-12)
    assert not method.head.weight.grad.any()


@pytest.mark.usefixtures("float64")
def test_a_batch_may_lack_a_class_and_be_of_one_domain() -> None:
    method, batch = method_with(weight=0.0, ordered=1.0), batch_of(30)
    keeps = (batch.y != 1) & (batch.domain == 0)
    batch = Samples(*(field[keeps] for field in batch))
    found = method.loss(method.model, batch).mean()
    expected = F.cross_entropy(method.model(batch.x), batch.y)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("ordered", [0.0, 0.4, 0.9, 1.0])
def test_as_many_images_stay_in_order_as_asked_for(ordered: float) -> None:
    orders = method_with(ordered=ordered, permutations=6)._orders(6000)
    counts = torch.bincount(orders, minlength=7) / 6000
    expected = torch.tensor([ordered, *[(1 - ordered) / 6] * 6])
    torch.testing.assert_close(counts, expected, rtol=0, atol=0.03)
    assert float(counts[0]) in (0.0, 1.0) or 0 < ordered < 1


def test_the_second_head_is_trained_and_saved_with_the_network() -> None:
    method = method_with(permutations=12)
    assert method.head.weight.shape == (13, 16)
    assert method.head.weight in set(method.trained)
    assert method.state_dict().keys() == {"head.weight", "head.bias"}


def test_a_backward_adds_to_gradients_and_leaves_parameters_alone() -> None:
    method, batch = method_with(ordered=0.5), batch_of()
    before = copy.deepcopy([*method.model.state_dict().values(), *method.state_dict().values()])
    torch.manual_seed(0)
    method.backward(Draw(batch, None))
    once = [p.grad.clone() for p in method.trained]
    torch.manual_seed(0)
    method.backward(Draw(batch, None))
    assert all(torch.equal(p.grad, 2 * g) for p, g in zip(method.trained, once, strict=True))
    after = [*method.model.state_dict().values(), *method.state_dict().values()]
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_images_too_small_for_tiles_are_refused() -> None:
    with pytest.raises(ConfigError, match="cuts images into 3x3 tiles, but they have 2 pixels"):
        JigenConfig().build(given_for(layout(), pictures(2), image_size=2))


@pytest.mark.parametrize(
    "options", [{"weight": -0.1}, {"ordered": 1.1}, {"permutations": 0}], ids=str
)
def test_options_without_sense_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        JigenConfig.model_validate(options)


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("only_ordered", [False, True])
@pytest.mark.parametrize("backbone", LAYOUTS)
def test_inside_cicf_it_has_the_gradient_of_unrolled_autograd(
    backbone: str, only_ordered: bool
) -> None:
    base = JigenConfig(ordered=0.5, only_ordered=only_ordered)
    assert gap_inside_cicf(base, layout(backbone), pictures(3)) < 1e-10


@pytest.mark.usefixtures("float64")
def test_inside_cicf_a_batch_can_be_cut() -> None:
    data, found = pictures(3), []
    for chunk in (None, 5):
        base = JigenConfig(ordered=1.0)
        config = CicfConfig(base=base, alpha=0.1, max_step_ratio=math.inf, chunk=chunk)
        method = built(config, layout(), data)
        found.append(gradients_of(method, draw_for(method, data)))
    assert_same(found[1], found[0], atol=1e-12)
