"""What a run draws: the sizes of its batches, and the samplers that a method asks for."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cicf import (
    ClassWeightedSampler,
    ConfigError,
    DataError,
    RandomSampler,
    Strata,
    StratifiedSampler,
)
from cicf.data.domains import DomainDataset
from cicf.data.folder import ONLY_DOMAIN
from cicf.data.sampling import Inner, Sampling, Sizes, batch_sizes, make_samplers
from cicf.data.tasks import TaskSampler

quick = settings(max_examples=60, deadline=None)
KINDS: list[Inner] = ["random", "class-weighted", "clusters", "within", "cross"]


def dataset(*sizes: int, names: tuple[str, ...] | None = None) -> DomainDataset:
    """Return domains of these sizes, with two classes."""
    domain = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    count = len(domain)
    return DomainDataset(
        torch.zeros(count, 3, 1, 1, dtype=torch.uint8),
        torch.arange(count) % 2,
        domain,
        ("cat", "dog"),
        names or tuple(f"domain{number}" for number in range(len(sizes))),
    )


def strata(data: DomainDataset) -> Strata:
    return Strata(torch.arange(len(data)) % 4, torch.arange(4) % 2)


def default_sizes(inner: Inner | None, *domains: int) -> Sizes:
    return batch_sizes(Sampling(inner), dataset(*domains), inner=None, outer=None)


@pytest.mark.parametrize("inner", [None, *KINDS])
def test_many_images_give_the_sizes_of_the_paper_without_a_note(inner: Inner | None) -> None:
    assert default_sizes(inner, 300, 200, 120) == Sizes(256, 84, ())


@pytest.mark.parametrize("inner", ["random", "class-weighted", "clusters"])
def test_few_images_shrink_both_batches_in_proportion(inner: Inner) -> None:
    sizes = default_sizes(inner, 40, 60)
    assert (sizes.inner, sizes.outer) == (100, 32)  # 100 · 84 / 256 = 32.8


def test_within_the_two_batches_share_the_smallest_domain_in_proportion() -> None:
    sizes = default_sizes("within", 500, 85)
    assert (sizes.inner, sizes.outer) == (128, 42)  # 2 · 85 = 170 = (256 + 84) / 2


def test_cross_the_outer_batch_is_as_large_as_the_smallest_domain_allows() -> None:
    sizes = default_sizes("cross", 500, 20, 400)
    assert (sizes.inner, sizes.outer) == (256, 60)


def test_notes_name_the_sizes_and_the_reason() -> None:
    assert default_sizes("clusters", 40, 60).notes == (
        "outer.size is 32 instead of 84, because the training set has 100 images",
        "inner.size is 100 instead of 256, because the training set has 100 images",
    )


def test_notes_of_tasks_name_the_sizes_of_the_domains() -> None:
    assert default_sizes("within", 500, 85).notes == (
        "outer.size is 42 instead of 84, because the 2 domains have 85 to 500 training images",
        "inner.size is 128 instead of 256, because the 2 domains have 85 to 500 training images",
    )


def test_a_method_without_an_inner_batch_has_no_note_about_it() -> None:
    assert [note.split()[0] for note in default_sizes(None, 40, 60).notes] == ["outer.size"]


@pytest.mark.parametrize("name", ["inner", "outer"])
def test_a_size_that_exceeds_the_data_is_refused(name: str) -> None:
    asked = {"inner": None, "outer": None, name: 101}
    with pytest.raises(ConfigError, match=rf"{name}\.size=101 is larger than .* has 100 images;"):
        batch_sizes(Sampling("clusters"), dataset(40, 60), **asked)


@quick
@given(
    kind=st.sampled_from([None, *KINDS]),
    inner=st.integers(1, 60) | st.none(),
    outer=st.integers(1, 60) | st.none(),
    domains=st.lists(st.integers(30, 400), min_size=2, max_size=4),
)
def test_what_is_asked_for_is_never_changed(
    kind: Inner | None, inner: int | None, outer: int | None, domains: list[int]
) -> None:
    sizes = batch_sizes(Sampling(kind), dataset(*domains), inner=inner, outer=outer)
    assert inner in (None, sizes.inner)
    assert outer in (None, sizes.outer)
    named = {note.split(".")[0] for note in sizes.notes}
    assert not named & {name for name, size in (("inner", inner), ("outer", outer)) if size}


@quick
@given(
    tasks=st.sampled_from(["within", "cross"]),
    domains=st.lists(st.integers(2, 400), min_size=2, max_size=6),
)
def test_default_sizes_can_always_be_drawn(tasks: Inner, domains: list[int]) -> None:
    data = dataset(*domains)
    samplers = make_samplers(
        Sampling(tasks), data, default_sizes(tasks, *domains), strata=None, seed=0
    )
    assert samplers.inner is not None
    for sampler in (samplers.inner, samplers.outer):
        assert len(sampler.batch(0)) == sampler.size >= len(domains)
        assert len(sampler) >= 1


@quick
@given(
    tasks=st.sampled_from(["within", "cross"]),
    block=st.integers(1, 20),
    domains=st.lists(st.integers(21, 200), min_size=2, max_size=5),
    is_inner=st.booleans(),
)
def test_the_default_of_one_batch_leaves_room_for_the_other(
    tasks: Inner, block: int, domains: list[int], is_inner: bool
) -> None:
    data, size = dataset(*domains), block * len(domains)
    sizes = batch_sizes(
        Sampling(tasks),
        data,
        inner=size if is_inner else None,
        outer=None if is_inner else size,
    )
    assert make_samplers(Sampling(tasks), data, sizes, strata=None, seed=0).tasks == len(domains)


def test_a_batch_that_leaves_one_image_a_task_is_taken_at_its_word() -> None:
    data = dataset(21, 21)
    sizes = batch_sizes(Sampling("within"), data, inner=None, outer=40)
    assert (sizes.inner, sizes.outer) == (2, 40)
    assert make_samplers(Sampling("within"), data, sizes, strata=None, seed=0).tasks == 2


def test_within_a_large_inner_batch_leaves_the_rest_of_the_domains_to_the_outer_one() -> None:
    sizes = batch_sizes(Sampling("within"), dataset(500, 85), inner=160, outer=None)
    assert sizes.outer == 10  # 2 · 85 − 160


@pytest.mark.parametrize("tasks", ["within", "cross"])
def test_more_domains_than_the_paper_has_images_get_two_images_each(tasks: Inner) -> None:
    assert default_sizes(tasks, *[50] * 100).outer == 200


def test_within_a_domain_of_one_image_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="at least 2 training images, but 'domain1' has 1; add"):
        default_sizes("within", 30, 1, 30)


def test_cross_takes_domains_of_one_image() -> None:
    sizes = default_sizes("cross", 1, 1, 1)
    samplers = make_samplers(Sampling("cross"), dataset(1, 1, 1), sizes, strata=None, seed=0)
    assert samplers.outer.batch(0).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("inner", "kind"),
    [
        ("random", RandomSampler),
        ("class-weighted", ClassWeightedSampler),
        ("clusters", StratifiedSampler),
        ("within", TaskSampler),
        ("cross", TaskSampler),
    ],
)
def test_the_inner_batch_is_drawn_as_the_method_asks(inner: Inner, kind: type) -> None:
    data = dataset(60, 60)
    found = make_samplers(
        Sampling(inner), data, Sizes(24, 8, ()), strata=strata(data), seed=0
    ).inner
    assert type(found) is kind
    assert (found.role, found.size) == ("inner", 24)


@pytest.mark.parametrize("inner", [None, "random", "class-weighted", "clusters"])
def test_the_outer_batch_is_random_in_the_proportional_scheme(inner: Inner | None) -> None:
    data = dataset(60, 60)
    found = make_samplers(
        Sampling(inner), data, Sizes(24, 8, ()), strata=strata(data), seed=0
    ).outer
    assert isinstance(found, RandomSampler)
    assert (found.role, found.size) == ("outer", 8)


def test_without_an_inner_batch_none_is_drawn() -> None:
    samplers = make_samplers(Sampling(), dataset(60), Sizes(24, 8, ()), strata=None, seed=0)
    assert samplers.inner is None


def test_balanced_inner_batches_come_with_balanced_outer_batches() -> None:
    data = dataset(60, 60)
    samplers = make_samplers(
        Sampling("clusters", scheme="balanced"),
        data,
        Sizes(24, 8, ()),
        strata=Strata((torch.arange(120) % 12).clamp(max=3), torch.arange(4) % 2),
        seed=0,
    )
    for sampler, share in ((samplers.inner, 6), (samplers.outer, 2)):
        assert isinstance(sampler, StratifiedSampler)
        clusters = sampler.strata.cluster[sampler.batch(5)]
        assert clusters.bincount().tolist() == [share] * 4


def test_rounding_reaches_the_sampler() -> None:
    data = dataset(60, 60)
    found = make_samplers(
        Sampling("clusters", rounding="fixed"),
        data,
        Sizes(24, 8, ()),
        strata=strata(data),
        seed=0,
    ).inner
    assert isinstance(found, StratifiedSampler)
    assert found.rounding == "fixed"


@pytest.mark.parametrize("inner", KINDS)
def test_both_batches_have_the_steps_of_an_epoch_of_outer_batches(inner: Inner) -> None:
    data = dataset(60, 65)
    samplers = make_samplers(Sampling(inner), data, Sizes(24, 8, ()), strata=strata(data), seed=0)
    assert samplers.inner is not None
    assert (len(samplers.outer), len(samplers.inner)) == (15, 15)  # ⌊125 / 8⌋


@pytest.mark.parametrize(("inner", "tasks"), [("clusters", 1), ("within", 3), ("cross", 3)])
def test_a_batch_has_a_block_for_each_task(inner: Inner, tasks: int) -> None:
    data = dataset(60, 60, 60)
    samplers = make_samplers(Sampling(inner), data, Sizes(24, 9, ()), strata=strata(data), seed=0)
    assert samplers.tasks == tasks


@pytest.mark.parametrize("inner", ["within", "cross"])
def test_methods_that_need_domains_refuse_a_folder_without(inner: Inner) -> None:
    data = dataset(60, names=(ONLY_DOMAIN,))
    with pytest.raises(DataError, match="needs to know the domain of each image, but the folder"):
        make_samplers(Sampling(inner), data, Sizes(24, 8, ()), strata=None, seed=0)
