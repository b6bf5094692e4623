"""Orders of tiles against brute force, and images in such an order against slices."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf.maths.tiles import all_permutations, far_permutations, shuffled

Order = tuple[int, ...]


def distance(a: Order, b: Order) -> int:
    return sum(one != other for one, other in zip(a, b, strict=True))


def smallest_distance(orders: tuple[Order, ...]) -> int:
    return min(distance(a, b) for a, b in itertools.combinations(orders, 2))


def as_tuples(orders: Tensor) -> tuple[Order, ...]:
    return tuple(map(tuple, orders.tolist()))


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_all_permutations_are_there_in_order(size: int) -> None:
    assert list(as_tuples(all_permutations(size))) == list(itertools.permutations(range(size)))


@pytest.mark.parametrize(("size", "count"), [(3, 6), (4, 12), (4, 20), (5, 9)])
def test_each_order_is_the_farthest_from_those_before_it(size: int, count: int) -> None:
    every = list(itertools.permutations(range(size)))
    expected = [every[0]]
    while len(expected) < count:
        keys = [
            (min(distance(a, b) for b in expected), sum(distance(a, b) for b in expected))
            for a in every
        ]
        expected.append(every[keys.index(max(keys))])
    assert list(as_tuples(far_permutations(count, size=size))) == expected


@pytest.mark.parametrize(
    ("size", "count"), [*((3, k) for k in range(2, 7)), (4, 3), (4, 4), (4, 5)]
)
def test_of_few_tiles_no_set_of_orders_has_a_larger_smallest_distance(
    size: int, count: int
) -> None:
    # Renaming tiles keeps distances, so that some best set has the identity in it.
    first, *rest = itertools.permutations(range(size))
    best = max(
        smallest_distance((first, *some)) for some in itertools.combinations(rest, count - 1)
    )
    assert smallest_distance(as_tuples(far_permutations(count, size=size))) == best


def test_orders_of_nine_tiles_differ_in_seven_places_at_least() -> None:
    orders = as_tuples(far_permutations(31))
    assert orders[0] == tuple(range(9))
    assert all(sorted(order) == list(range(9)) for order in orders)
    assert smallest_distance(orders) >= 7


def test_the_first_nine_orders_of_nine_tiles_differ_everywhere() -> None:
    assert smallest_distance(as_tuples(far_permutations(9))) == 9


def test_orders_do_not_depend_on_the_random_state() -> None:
    first = far_permutations(5)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    assert torch.equal(far_permutations(5), first)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("height", "width", "top", "left"),
    [(9, 9, 0, 0), (16, 16, 0, 0), (32, 32, 1, 1), (11, 7, 1, 0)],
)
def test_each_place_gets_the_tile_of_its_order(
    height: int, width: int, top: int, left: int
) -> None:
    x, orders = torch.randn(4, 3, height, width), [torch.randperm(9) for _ in range(4)]
    expected = x.numpy().copy()
    tall, wide = height // 3, width // 3
    for image, order in enumerate(orders):
        for place, tile in enumerate(order.tolist()):
            to_y, to_x = top + place // 3 * tall, left + place % 3 * wide
            from_y, from_x = top + tile // 3 * tall, left + tile % 3 * wide
            expected[image, :, to_y : to_y + tall, to_x : to_x + wide] = x[
                image, :, from_y : from_y + tall, from_x : from_x + wide
            ].numpy()
    np.testing.assert_array_equal(shuffled(x, torch.stack(orders)).numpy(), expected)


def test_the_right_order_leaves_every_pixel_in_place() -> None:
    x = torch.randn(2, 3, 17, 20)
    assert torch.equal(shuffled(x, torch.arange(9).expand(2, 9)), x)


@settings(max_examples=20, deadline=None)
@given(order=st.permutations(range(9)), height=st.integers(3, 12), width=st.integers(3, 12))
def test_the_inverse_order_undoes_an_order(order: list[int], height: int, width: int) -> None:
    x = torch.arange(2.0 * height * width).reshape(1, 2, height, width)
    there = torch.tensor([order])
    assert torch.equal(shuffled(shuffled(x, there), there.argsort(1)), x)


def test_images_that_are_given_are_left_alone() -> None:
    x = torch.randn(2, 3, 9, 9)
    before = x.clone()
    shuffled(x, torch.stack([torch.randperm(9) for _ in range(2)]))
    assert torch.equal(x, before)
