"""Which images are trained on, chosen by, and tested on."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cicf.core import ConfigError, DataError
from cicf.data.domains import DomainDataset
from cicf.data.fingerprint import fingerprint
from cicf.data.protocol import Split, hold_out, leave_one_domain_out, single_source

TRAIN, VALIDATION, TEST, UNSAID = 0, 1, 2, -1
DOMAINS = ("art", "photo", "sketch")
CLASSES = ("cat", "dog")


def images(per_class: int = 10, part: list[int] | None = None) -> DomainDataset:
    """Return three domains of two classes; the first pixel of image i holds i."""
    count = len(DOMAINS) * len(CLASSES) * per_class
    pixels = torch.zeros(count, 3, 2, 2, dtype=torch.uint8)
    pixels[:, 0, 0, 0] = torch.arange(count)
    domain = torch.arange(3).repeat_interleave(2 * per_class)
    y = torch.arange(2).repeat_interleave(per_class).repeat(3)
    marks = None if part is None else torch.tensor(part)
    return DomainDataset(pixels, y, domain, CLASSES, DOMAINS, part=marks)


def ids(data: DomainDataset | None) -> list[int]:
    """Return the numbers of the images."""
    assert data is not None
    return [int(pixels[0, 0, 0]) for pixels in data.images]


def by_tens(*marks: int) -> list[int]:
    """Return ten marks for each of the six classes in domains, the same for every ten."""
    return list(marks) * 6


OFFICIAL = by_tens(*[TRAIN] * 7, *[VALIDATION] * 3)
WITH_TEST = by_tens(*[TRAIN] * 6, VALIDATION, *[TEST] * 3)


def test_sources_are_split_by_the_given_lists() -> None:
    split = leave_one_domain_out(images(part=OFFICIAL), "sketch")
    assert ids(split.train) == [n for n in range(40) if n % 10 < 7]
    assert ids(split.validation) == [n for n in range(40) if n % 10 >= 7]
    assert split.rule == "the given lists"


def test_target_without_a_test_part_is_scored_whole() -> None:
    split = leave_one_domain_out(images(part=OFFICIAL), "sketch")
    assert ids(split.test) == list(range(40, 60))
    assert split.scored == "all images"


def test_target_with_a_test_part_is_scored_on_it_alone() -> None:
    split = leave_one_domain_out(images(part=WITH_TEST), "sketch")
    assert ids(split.test) == [n for n in range(40, 60) if n % 10 >= 7]
    assert split.scored == "official test part"


def test_test_part_of_a_source_is_used_for_nothing() -> None:
    split = leave_one_domain_out(images(part=WITH_TEST), "sketch")
    assert ids(split.train) == [n for n in range(40) if n % 10 < 6]
    assert ids(split.validation) == [n for n in range(40) if n % 10 == 6]


@pytest.mark.parametrize(("share", "held"), [(0.1, 1), (0.2, 2)])
def test_without_lists_a_share_of_every_class_of_every_source_is_held_out(
    share: float, held: int
) -> None:
    split = leave_one_domain_out(images(), "photo", validation=share, seed=3)
    cells = [(n // 20, n // 10 % 2) for n in ids(split.validation)]
    assert sorted(cells) == sorted([(d, c) for d in (0, 2) for c in (0, 1)] * held)
    assert split.rule == f"{100 * share:g} % of every class, drawn by seed"


def test_lists_can_be_left_aside() -> None:
    split = leave_one_domain_out(images(part=WITH_TEST), "sketch", uses_given=False)
    assert len(split.train) + len(split.validation) == 40
    assert len(ids(split.test)) == 20
    assert split.rule == "10 % of every class, drawn by seed"


def test_domain_without_lists_is_split_at_random_beside_one_with_lists() -> None:
    marks = OFFICIAL[:20] + [UNSAID] * 20 + OFFICIAL[40:]
    split = leave_one_domain_out(images(part=marks), "sketch")
    held = ids(split.validation)
    assert [n for n in held if n < 20] == [n for n in range(20) if n % 10 >= 7]
    assert len([n for n in held if n >= 20]) == 2
    assert split.rule == "the given lists, elsewhere 10 % of every class, drawn by seed"


def test_image_that_the_lists_leave_out_is_trained_on() -> None:
    marks = [UNSAID, *OFFICIAL[1:]]
    assert 0 in ids(leave_one_domain_out(images(part=marks), "sketch").train)


def test_single_source_trains_on_one_and_tests_on_all_others() -> None:
    split = single_source(images(part=OFFICIAL), "photo")
    assert ids(split.train) == [n for n in range(20, 40) if n % 10 < 7]
    assert ids(split.test) == [*range(20), *range(40, 60)]


def test_single_source_scores_the_test_parts_where_there_are_any() -> None:
    split = single_source(images(part=WITH_TEST), "photo")
    assert ids(split.test) == [n for n in (*range(20), *range(40, 60)) if n % 10 >= 7]


def test_a_given_test_part_is_tested_on_where_no_domain_is_held_out() -> None:
    split = hold_out(images(part=WITH_TEST))
    assert ids(split.test) == [n for n in range(60) if n % 10 >= 7]
    assert hold_out(images()).test is None


def test_random_split_follows_from_the_seed() -> None:
    first, again, other = (ids(hold_out(images(), seed=seed).validation) for seed in (0, 0, 1))
    assert first == again != other


@settings(max_examples=60, deadline=None)
@given(
    marks=st.lists(st.sampled_from([UNSAID, TRAIN, VALIDATION, TEST]), min_size=60, max_size=60),
    domain=st.sampled_from(DOMAINS),
    protocol=st.sampled_from([leave_one_domain_out, single_source]),
)
def test_no_image_is_in_two_parts_and_no_tested_domain_is_trained_on(
    marks: list[int], domain: str, protocol: Callable[..., Split]
) -> None:
    split = protocol(images(part=marks), domain)
    parts = [ids(split.train), ids(split.validation), ids(split.test)]
    assert len({n for part in parts for n in part}) == sum(map(len, parts))
    seen = {n // 20 for n in parts[0] + parts[1]}
    assert seen.isdisjoint({n // 20 for n in parts[2]})


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_share_that_leaves_nothing_is_refused(share: float) -> None:
    with pytest.raises(ConfigError, match=f"validation={share}"):
        hold_out(images(), validation=share)


@pytest.mark.parametrize("protocol", [leave_one_domain_out, single_source])
def test_one_domain_alone_cannot_be_parted(protocol: Callable[..., Split]) -> None:
    alone = DomainDataset(
        torch.zeros(4, 3, 2, 2, dtype=torch.uint8),
        torch.tensor([0, 0, 1, 1]),
        torch.zeros(4, dtype=torch.int64),
        CLASSES,
        ("art",),
    )
    with pytest.raises(DataError, match="one domain only, 'art'"):
        protocol(alone, "art")


def test_test_parts_of_some_domains_are_not_called_those_of_all() -> None:
    marks = WITH_TEST[:20] + OFFICIAL[20:]
    split = single_source(images(part=marks), "photo")
    assert split.scored == "official test part, elsewhere all images"
    assert ids(split.test) == [*(n for n in range(20) if n % 10 >= 7), *range(40, 60)]


def test_fingerprint_tells_splits_apart() -> None:
    assert fingerprint(images(part=OFFICIAL)) != fingerprint(images(part=WITH_TEST))
    assert fingerprint(images(part=OFFICIAL)) == fingerprint(images(part=list(OFFICIAL)))
