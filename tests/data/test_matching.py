"""Which images belong together, against a loop over the images."""

import pytest
import torch
from torch import Tensor

from cicf.data.matching import at_random, matched_places, nearest_by

Y = torch.tensor([0, 1, 0, 0, 1, 1, 0, 1, 0, 2, 2])
DOMAIN = torch.tensor([4, 4, 4, 4, 4, 1, 1, 1, 1, 1, 1])
"""Class 0: three images of domain 4 and two of 1; class 1: two each; class 2: domain 1 alone."""


def random_features() -> Tensor:
    return torch.randn(len(Y), 3, generator=torch.Generator().manual_seed(0))


def test_there_is_a_group_for_each_image_of_the_largest_domain_of_its_class() -> None:
    groups = matched_places(Y, DOMAIN, at_random)
    base = [row[int(Y[row[0]] == 0)] for row in groups.tolist()]
    assert sorted(base) == [0, 2, 3, 5, 7, 9, 10]


@pytest.mark.parametrize("by_features", [False, True])
def test_columns_are_domains_in_ascending_order_and_rows_are_of_one_class(
    by_features: bool,
) -> None:
    choose = nearest_by(random_features()) if by_features else at_random
    groups = matched_places(Y, DOMAIN, choose)
    assert (Y[groups] == Y[groups[:, :1]]).all()
    with_both = groups[Y[groups[:, 0]] != 2]
    assert torch.equal(DOMAIN[with_both], torch.tensor([[1, 4]]).expand(len(with_both), 2))


def test_of_domains_with_as_many_images_the_first_is_the_base() -> None:
    groups = matched_places(Y, DOMAIN, at_random)
    assert groups[Y[groups[:, 0]] == 1, 0].tolist() == [5, 7]


def test_an_image_stands_in_for_the_domain_that_lacks_its_class() -> None:
    groups = matched_places(Y, DOMAIN, at_random)
    assert groups[Y[groups[:, 0]] == 2].tolist() == [[9, 9], [10, 10]]


def test_partners_are_nearest_neighbours() -> None:
    features = random_features()
    groups = matched_places(Y, DOMAIN, nearest_by(features))
    for first, second in groups[Y[groups[:, 0]] != 2].tolist():
        base, partner = (second, first) if Y[first] == 0 else (first, second)
        candidates = [
            place
            for place in range(len(Y))
            if Y[place] == Y[base] and DOMAIN[place] == DOMAIN[partner]
        ]
        distances = [float((features[base] - features[each]).norm()) for each in candidates]
        assert partner == candidates[distances.index(min(distances))]


def test_neighbours_that_are_near_each_other_and_far_from_0_are_told_apart() -> None:
    y, domain = torch.zeros(30, dtype=torch.int64), torch.arange(30) % 2
    features = (1e4 + torch.arange(30) // 2 * 0.01)[:, None].double().expand(30, 40)
    groups = matched_places(y, domain, nearest_by(features.float()))
    exact = matched_places(y, domain, nearest_by(features.float().double()))
    assert torch.equal(groups, exact)
    assert groups[:, 1].tolist() == [place + 1 for place in groups[:, 0].tolist()]


def test_random_partners_come_from_all_candidates_alike() -> None:
    base, candidates = torch.arange(3000), torch.tensor([5, 7, 11])
    counts = at_random(base, candidates).unique(return_counts=True)
    assert counts[0].tolist() == [5, 7, 11]
    assert (counts[1] - 1000).abs().max() < 5 * (3000 * 2 / 9) ** 0.5


def test_random_partners_follow_the_global_seed() -> None:
    torch.manual_seed(3)
    first = matched_places(Y, DOMAIN, at_random)
    torch.manual_seed(3)
    assert torch.equal(first, matched_places(Y, DOMAIN, at_random))
