"""Batches made of blocks: as many images of each domain, of two of them, or of matched groups."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.test_sampling import dataset
from tests.data.test_tasks import domains_of
from torch import Tensor

from cicf import ConfigError, DataError
from cicf.data.blocks import DomainSampler, Groups, GroupSampler, PairSampler
from cicf.data.folder import ONLY_DOMAIN
from cicf.data.samplers import StepSampler
from cicf.data.sampling import Outer, Sampling, Sizes, batch_sizes, make_samplers

quick = settings(max_examples=60, deadline=None)
OUTERS: list[Outer] = ["domains", "pairs"]
some_sizes = st.lists(st.integers(1, 12), min_size=1, max_size=5)


def groups_of(count: int, members: int) -> Groups:
    """Return groups that share no image."""
    return Groups(torch.randperm(count * members).reshape(count, members))


def counts_of(domain: Tensor, batch: Tensor) -> dict[int, int]:
    """Return how many images of a batch each domain has."""
    ids, counts = domain[batch].unique(return_counts=True)
    return dict(zip(ids.tolist(), counts.tolist(), strict=True))


@quick
@given(sizes=some_sizes, step=st.integers(0, 50), data=st.data())
def test_every_domain_has_a_block_of_the_same_size(
    sizes: list[int], step: int, data: st.DataObject
) -> None:
    domain, block = domains_of(*sizes), data.draw(st.integers(1, min(sizes)))
    batch = DomainSampler(domain, size=block * len(sizes)).batch(step)
    rows = domain[batch].reshape(len(sizes), block)
    assert rows.tolist() == [[2 * number] * block for number in range(len(sizes))]


@quick
@given(sizes=some_sizes, step=st.integers(0, 50), data=st.data())
def test_no_image_comes_twice_in_a_batch(sizes: list[int], step: int, data: st.DataObject) -> None:
    domain, block = domains_of(*sizes), data.draw(st.integers(1, min(sizes)))
    for kind, blocks in ((DomainSampler, len(sizes)), (PairSampler, min(2, len(sizes)))):
        batch = kind(domain, size=block * blocks).batch(step)
        assert len(batch.unique()) == len(batch) == block * blocks


def test_every_image_of_a_domain_comes_once_in_a_round_through_it() -> None:
    domain = domains_of(12, 6)
    sampler = DomainSampler(domain, size=6)
    batches = torch.stack([sampler.batch(step) for step in range(12)])
    for first, place, steps in ((0, slice(0, 3), 4), (2, slice(3, 6), 2)):
        rounds = batches[:, place].reshape(-1, steps * 3)
        own = (domain == first).nonzero()[:, 0].tolist()
        assert [sorted(each) for each in rounds.tolist()] == [own] * len(rounds)


def test_rounds_of_a_domain_go_through_it_in_other_orders() -> None:
    sampler = DomainSampler(domains_of(12, 12), size=6)
    rounds = torch.stack([sampler.batch(step) for step in range(8)]).reshape(2, -1)
    assert rounds[0].tolist() != rounds[1].tolist()


def test_domains_are_drawn_independently() -> None:
    domain = torch.arange(40) // 20
    batch = DomainSampler(domain, size=20).batch(0)
    assert batch[:10].tolist() != (batch[10:] - 20).tolist()


def test_a_pair_is_half_of_one_domain_and_half_of_another() -> None:
    domain = domains_of(9, 9, 9, 9)
    sampler = PairSampler(domain, size=8)
    for step in range(20):
        batch = sampler.batch(step)
        assert len(set(domain[batch[:4]].tolist())) == len(set(domain[batch[4:]].tolist())) == 1
        assert list(counts_of(domain, batch).values()) == [4, 4]


def test_every_ordered_pair_of_domains_comes_up_about_as_often() -> None:
    domain = domains_of(5, 5, 5)
    sampler = PairSampler(domain, size=2)
    pairs = [tuple(domain[sampler.batch(step)].tolist()) for step in range(600)]
    counts = [pairs.count((a, b)) for a in (0, 2, 4) for b in (0, 2, 4) if a != b]
    assert sum(counts) == 600
    # 100 each; four standard deviations of a binomial are 36.5.
    assert all(abs(count - 100) < 37 for count in counts)


def test_every_image_comes_up_in_pairs() -> None:
    sampler = PairSampler(domains_of(5, 7, 9), size=4)
    seen = torch.cat([sampler.batch(step) for step in range(120)])
    assert sorted(seen.unique().tolist()) == list(range(21))


@pytest.mark.parametrize("kind", [DomainSampler, PairSampler])
def test_a_single_domain_is_one_block(kind: type[DomainSampler]) -> None:
    sampler = kind(domains_of(10), size=5)
    assert (sampler.count, len(sampler.batch(0))) == (1, 5)
    assert sorted(torch.cat([sampler.batch(0), sampler.batch(1)]).tolist()) == list(range(10))


@pytest.mark.parametrize("kind", [DomainSampler, PairSampler])
def test_the_names_of_domains_make_no_difference(kind: type[DomainSampler]) -> None:
    domain = domains_of(8, 8, 8)
    gaps = torch.tensor([3, -1, 7, -1, 90])[domain]
    assert set(gaps.tolist()) == {3, 7, 90}
    plain, other = kind(domain, size=6), kind(gaps, size=6)
    for step in range(5):
        assert plain.batch(step).tolist() == other.batch(step).tolist()


@pytest.mark.parametrize(("kind", "expected"), [(DomainSampler, 9), (PairSampler, 10)])
def test_a_size_that_the_blocks_do_not_divide_is_rounded_down(
    kind: type[DomainSampler], expected: int
) -> None:
    sampler = kind(domains_of(9, 9, 9), size=11)
    assert len(sampler.batch(0)) == sampler.size == expected


def test_groups_are_drawn_whole_one_after_the_other() -> None:
    groups = groups_of(7, 3)
    sampler = GroupSampler(groups, 21, size=12)
    rows = {tuple(row) for row in groups.places.tolist()}
    for step in range(10):
        drawn = [tuple(row) for row in sampler.batch(step).reshape(4, 3).tolist()]
        assert len(set(drawn)) == 4
        assert set(drawn) <= rows


def test_every_group_comes_once_in_a_round() -> None:
    groups = groups_of(8, 3)
    sampler = GroupSampler(groups, 24, size=6)
    for first in (0, 4):
        seen = torch.cat([sampler.batch(first + step) for step in range(4)])
        assert sorted(seen.tolist()) == list(range(24))


def test_a_batch_holds_no_more_groups_than_there_are() -> None:
    sampler = GroupSampler(groups_of(2, 3), 40, size=20)
    assert sampler.size == 6
    assert sorted(sampler.batch(3).tolist()) == list(range(6))


def test_an_image_may_be_in_several_groups() -> None:
    places = torch.tensor([[0, 1], [0, 2], [0, 3]])
    batch = GroupSampler(Groups(places), 4, size=4).batch(0).reshape(2, 2)
    assert batch[:, 0].tolist() == [0, 0]
    assert len(batch[:, 1].unique()) == 2


SAMPLERS: dict[str, Callable[[int], StepSampler]] = {
    "domains": lambda seed: DomainSampler(domains_of(20, 30), size=8, seed=seed, steps=6),
    "pairs": lambda seed: PairSampler(domains_of(20, 30, 25), size=8, seed=seed, steps=6),
    "groups": lambda seed: GroupSampler(Groups(PLACES), 40, size=8, seed=seed, steps=6),
}
PLACES = torch.arange(40).reshape(20, 2)


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_batch_is_a_function_of_seed_and_step(kind: str) -> None:
    straight, jumped = SAMPLERS[kind](3), SAMPLERS[kind](3)
    batches = [straight.batch(step).tolist() for step in range(6)]
    torch.manual_seed(99)
    assert jumped.batch(5).tolist() == batches[5]
    assert jumped.batch(2).tolist() == batches[2]
    assert SAMPLERS[kind](4).batch(5).tolist() != batches[5]
    assert len({tuple(batch) for batch in batches}) == 6


@pytest.mark.parametrize("kind", SAMPLERS)
def test_a_sampler_goes_on_from_its_state(kind: str) -> None:
    straight, resumed = SAMPLERS[kind](0), SAMPLERS[kind](0)
    expected = list(straight)
    resumed.load_state_dict(straight.state_dict(step=2))
    assert list(resumed) == expected[2:]


@pytest.mark.parametrize(("kind", "size"), [(DomainSampler, 18), (PairSampler, 12)])
def test_a_block_larger_than_the_smallest_domain_is_refused(
    kind: type[DomainSampler], size: int
) -> None:
    sentence = rf"outer\.size={size} is 6 images for each block of one domain, but the domains"
    with pytest.raises(ConfigError, match=f"{sentence} have 5 training images or more; it must"):
        kind(domains_of(9, 5, 9), size=size)
    kind(domains_of(9, 6, 9), size=size)


@pytest.mark.parametrize(("kind", "size"), [(DomainSampler, 2), (PairSampler, 1)])
def test_less_than_an_image_a_block_is_refused(kind: type[DomainSampler], size: int) -> None:
    with pytest.raises(ConfigError, match=rf"outer\.size={size} is 0 images for each block of one"):
        kind(domains_of(9, 9, 9), size=size)
    kind(domains_of(9, 9, 9), size=size + 1)


def test_less_than_a_group_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"inner\.size=2 is less than a group of 3 matched image"):
        GroupSampler(groups_of(4, 3), 12, size=2)


@pytest.mark.parametrize(("outer", "tasks"), [("domains", 3), ("pairs", 1), ("random", 1)])
def test_a_draw_says_how_many_blocks_it_has(outer: Outer, tasks: int) -> None:
    data = dataset(20, 20, 20)
    samplers = make_samplers(Sampling(outer=outer), data, Sizes(1, 12, ()), strata=None, seed=0)
    assert samplers.tasks == tasks
    assert samplers.inner is None


def test_blocks_and_groups_have_the_steps_of_an_epoch() -> None:
    data = dataset(20, 25)
    for outer in OUTERS:
        sampling = Sampling(inner="groups", outer=outer, groups=Groups(PLACES))
        samplers = make_samplers(sampling, data, Sizes(10, 8, ()), strata=None, seed=0)
        assert samplers.inner is not None
        assert (len(samplers.outer), len(samplers.inner)) == (5, 5)  # ⌊45 / 8⌋


def test_groups_come_beside_the_outer_batch_of_random_images() -> None:
    sampling = Sampling(inner="groups", groups=Groups(PLACES))
    samplers = make_samplers(sampling, dataset(20, 25), Sizes(10, 8, ()), strata=None, seed=0)
    assert isinstance(samplers.inner, GroupSampler)
    assert (samplers.inner.role, samplers.inner.size) == ("inner", 10)
    assert samplers.outer.role == "outer"


@quick
@given(outer=st.sampled_from(OUTERS), sizes=st.lists(st.integers(1, 400), min_size=1, max_size=6))
def test_default_sizes_can_always_be_drawn(outer: Outer, sizes: list[int]) -> None:
    data, sampling = dataset(*sizes), Sampling(outer=outer)
    found = batch_sizes(sampling, data, inner=None, outer=None)
    sampler = make_samplers(sampling, data, found, strata=None, seed=0).outer
    blocks = len(sizes) if outer == "domains" else min(2, len(sizes))
    assert set(counts_of(data.domain, sampler.batch(0)).values()) == {sampler.size // blocks}
    assert len(sampler) >= 1


def test_many_images_give_the_size_of_the_paper() -> None:
    for outer in OUTERS:
        found = batch_sizes(Sampling(outer=outer), dataset(300, 200), inner=None, outer=None)
        assert (found.outer, found.notes) == (84, ())


@pytest.mark.parametrize(("outer", "size"), [("domains", 36), ("pairs", 24)])
def test_a_small_domain_limits_the_size_and_a_note_says_so(outer: Outer, size: int) -> None:
    found = batch_sizes(Sampling(outer=outer), dataset(12, 400, 400), inner=None, outer=None)
    assert found.outer == size
    assert found.notes == (
        f"outer.size is {size} instead of 84, because the 3 domains have 12 training images or "
        "more",
    )


@pytest.mark.parametrize(("outer", "size"), [("domains", 200), ("pairs", 84)])
def test_more_domains_than_the_paper_has_images(outer: Outer, size: int) -> None:
    data = dataset(*[50] * 100)
    assert batch_sizes(Sampling(outer=outer), data, inner=None, outer=None).outer == size


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(outer="domains"),
        Sampling(outer="pairs"),
        Sampling("groups", groups=Groups(PLACES)),
    ],
)
def test_images_without_domains_are_refused(sampling: Sampling) -> None:
    data = dataset(60, names=(ONLY_DOMAIN,))
    with pytest.raises(DataError, match="needs to know the domain of each image, but the folder"):
        make_samplers(sampling, data, Sizes(24, 8, ()), strata=None, seed=0)
