"""Batches as a function of (seed, step)."""

from collections.abc import Callable
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from cicf import (
    ClassWeightedSampler,
    ConfigError,
    DataError,
    RandomSampler,
    Strata,
    StratifiedSampler,
)

quick = settings(max_examples=40, deadline=None)


def strata_of_sizes(*sizes: int, labels: list[int] | None = None) -> Strata:
    cluster = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    shuffled = cluster[torch.randperm(len(cluster), generator=torch.Generator().manual_seed(0))]
    return Strata(shuffled, torch.tensor(labels or range(len(sizes))))


@st.composite
def sampled(draw: st.DrawFn) -> StratifiedSampler:
    sizes = draw(st.lists(st.integers(1, 15), min_size=1, max_size=8))
    return StratifiedSampler(
        strata_of_sizes(*sizes),
        size=draw(st.integers(1, sum(sizes))),
        scheme=draw(st.sampled_from(["proportional", "balanced"])),
        rounding=draw(st.sampled_from(["systematic", "fixed"])),
        seed=draw(st.integers(0, 1000)),
    )


@quick
@given(sampler=sampled(), step=st.integers(0, 50))
def test_a_batch_has_the_places_of_its_allocation(sampler: StratifiedSampler, step: int) -> None:
    batch = sampler.batch(step)
    counts = sampler.counts(step)
    assert len(batch) == sampler.size
    assert torch.equal(
        sampler.strata.cluster[batch].bincount(minlength=sampler.strata.count), counts
    )


@quick
@given(sampler=sampled(), step=st.integers(0, 50))
def test_images_repeat_only_when_their_cluster_is_exhausted(
    sampler: StratifiedSampler, step: int
) -> None:
    times = sampler.batch(step).bincount(minlength=len(sampler.strata.cluster))
    for members, count in zip(sampler.strata.members, sampler.counts(step).tolist(), strict=True):
        assert int(times[members].max()) - int(times[members].min()) <= 1
        assert int(times[members].max()) == -(-count // len(members))
    if sampler.scheme == "proportional":
        assert int(times.max()) == 1


def test_every_image_comes_up_equally_often_in_the_proportional_scheme() -> None:
    sampler = StratifiedSampler(strata_of_sizes(1, 2, 5, 12), size=6, seed=3)
    times = sum(sampler.batch(step).bincount(minlength=20) for step in range(6000))
    assert isinstance(times, torch.Tensor)
    expected = 6000 * 6 / 20
    assert (times - expected).abs().max() < 5 * (expected * 0.7) ** 0.5


def test_clusters_come_up_equally_often_in_the_balanced_scheme() -> None:
    sampler = StratifiedSampler(strata_of_sizes(1, 2, 5, 12), size=6, scheme="balanced")
    assert sum(sampler.counts(step) for step in range(4)).tolist() == [6, 6, 6, 6]


def test_more_clusters_than_places_are_all_reached() -> None:
    sampler = StratifiedSampler(strata_of_sizes(*[2] * 195), size=84, scheme="balanced")
    seen = torch.cat([sampler.strata.cluster[sampler.batch(step)] for step in range(3)])
    assert len(seen.unique()) == 195


def test_random_sampler_goes_through_all_images_before_it_repeats() -> None:
    sampler = RandomSampler(20, size=5, seed=1)
    epoch = torch.tensor(list(sampler)).flatten()
    assert sorted(epoch.tolist()) == list(range(20))
    assert torch.tensor(list(sampler)).flatten().tolist() != epoch.tolist()


def test_class_weighted_sampler_has_the_class_counts_of_the_stratified_batch() -> None:
    strata = strata_of_sizes(7, 3, 11, 4, labels=[0, 0, 5, 5])
    stratified, weighted = (
        kind(strata, size=10, seed=2) for kind in (StratifiedSampler, ClassWeightedSampler)
    )
    gaps = 0
    for step in range(50):
        batches = stratified.batch(step), weighted.batch(step)
        classes = [(strata.label[strata.cluster[b]] == 5).sum() for b in batches]
        clusters = [strata.cluster[b].bincount(minlength=4) for b in batches]
        assert classes[0] == classes[1]
        assert len(batches[1].unique()) == 10
        gaps += int((clusters[0] - clusters[1]).abs().sum())
    assert gaps > 0


SAMPLERS: list[Callable[[], StratifiedSampler | RandomSampler | ClassWeightedSampler]] = [
    lambda: StratifiedSampler(strata_of_sizes(6, 9, 20), size=7, steps=4, seed=5),
    lambda: ClassWeightedSampler(strata_of_sizes(6, 9, 20), size=7, steps=4, seed=5),
    lambda: RandomSampler(35, size=7, steps=4, seed=5),
]


@pytest.mark.parametrize("build", SAMPLERS)
def test_state_goes_on_in_mid_epoch(build: Callable[[], StratifiedSampler]) -> None:
    straight, cut, resumed = build(), build(), build()
    expected = [batch for _ in range(3) for batch in straight]
    before = list(islice(cut, 3))
    resumed.load_state_dict(cut.state_dict())
    assert len(expected) == 12
    assert before + [batch for _ in range(3) for batch in resumed] == expected


def overlap(first: StratifiedSampler | RandomSampler, second: StratifiedSampler) -> float:
    """Return the mean number of images that two samplers share in a step."""
    shared = [
        len(set(first.batch(step).tolist()) & set(second.batch(step).tolist()))
        for step in range(300)
    ]
    return sum(shared) / len(shared)


@pytest.mark.parametrize("scheme", ["proportional", "balanced"])
@pytest.mark.parametrize("size", [24, 12])
def test_inner_and_outer_batches_of_one_seed_are_independent(scheme: str, size: int) -> None:
    strata = strata_of_sizes(*[20] * 6)
    inner = StratifiedSampler(strata, size=24, scheme=scheme, seed=0)
    outer = StratifiedSampler(strata, size=size, scheme=scheme, seed=0, role="outer")
    by_chance = 24 * size / 120
    assert overlap(inner, outer) == pytest.approx(by_chance, rel=0.15)
    assert overlap(RandomSampler(120, size=size, seed=0), inner) == pytest.approx(
        by_chance, rel=0.15
    )


@pytest.mark.parametrize("num_workers", [0, 2])
def test_looking_at_a_batch_does_not_shorten_the_next_epoch(num_workers: int) -> None:
    sampler = StratifiedSampler(strata_of_sizes(6, 9, 20), size=7, steps=6)
    loader = DataLoader(
        TensorDataset(torch.arange(35)), batch_sampler=sampler, num_workers=num_workers
    )
    next(iter(loader))
    assert len(list(loader)) == 6
    assert len(list(islice(loader, 2))) == 2
    assert len(list(loader)) == 6


def test_two_iterations_at_once_have_full_epochs() -> None:
    sampler = StratifiedSampler(strata_of_sizes(6, 9, 20), size=7, steps=6)
    assert len(list(zip(sampler, sampler, strict=True))) == 6


@pytest.mark.usefixtures("untyped")
def test_numbers_of_numpy_are_the_numbers_of_python() -> None:
    strata = strata_of_sizes(6, 9, 20)
    plain = StratifiedSampler(strata, size=7, seed=3)
    numpy = StratifiedSampler(strata, size=np.int64(7), seed=np.int64(3))
    assert torch.equal(plain.batch(4), numpy.batch(4))
    numpy.load_state_dict(plain.state_dict())


def test_state_survives_a_file_without_code(tmp_path: Path) -> None:
    sampler = StratifiedSampler(strata_of_sizes(6, 9, 20), size=7, steps=6)
    torch.save(sampler.state_dict(step=4), tmp_path / "state.pt")
    resumed = StratifiedSampler(strata_of_sizes(9, 6, 20), size=7, steps=6)
    resumed.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert [torch.tensor(batch).tolist() for batch in resumed] == [
        sampler.batch(step).tolist() for step in (4, 5)
    ]


@pytest.mark.usefixtures("untyped")
def test_states_that_are_none_are_refused_and_change_nothing() -> None:
    sampler = StratifiedSampler(strata_of_sizes(6, 9), size=5)
    with pytest.raises(DataError, match="no state of a sampler"):
        sampler.load_state_dict({})
    with pytest.raises(ConfigError, match="had num_images=14"):
        sampler.load_state_dict(StratifiedSampler(strata_of_sizes(6, 8), size=5).state_dict(3))
    with pytest.raises(DataError, match="saved step is -1"):
        sampler.load_state_dict(sampler.state_dict(-1))
    assert sampler.step == 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_that_reads_ahead_resumes_by_the_steps_taken(num_workers: int) -> None:
    data = TensorDataset(torch.arange(35))

    def loader(sampler: StratifiedSampler) -> DataLoader[tuple[torch.Tensor]]:
        return DataLoader(data, batch_sampler=sampler, num_workers=num_workers)

    def build() -> StratifiedSampler:
        return StratifiedSampler(strata_of_sizes(6, 9, 20), size=7, steps=5, seed=5)

    straight = [x.tolist() for (x,) in loader(build())]
    cut = build()
    first = [x.tolist() for (x,) in islice(loader(cut), 2)]
    resumed = build()
    resumed.load_state_dict(cut.state_dict(step=2))
    assert first + [x.tolist() for (x,) in loader(resumed)] == straight


def test_state_brings_its_clusters_along() -> None:
    sampler = StratifiedSampler(strata_of_sizes(6, 9), size=5)
    other = StratifiedSampler(strata_of_sizes(3, 12), size=5)
    other.load_state_dict(sampler.state_dict())
    assert torch.equal(other.batch(3), sampler.batch(3))


def test_state_of_another_sampler_is_refused() -> None:
    saved = StratifiedSampler(strata_of_sizes(6, 9), size=5, seed=1).state_dict()
    with pytest.raises(ConfigError, match="had seed=1, this one has 0"):
        StratifiedSampler(strata_of_sizes(6, 9), size=5, seed=0).load_state_dict(saved)


def test_new_clusters_take_effect_at_once() -> None:
    sampler = StratifiedSampler(strata_of_sizes(8, 8), size=4, scheme="balanced")
    sampler.restratify(Strata(torch.arange(16) % 4, torch.arange(4)))
    assert sampler.counts(0).tolist() == [1, 1, 1, 1]
    with pytest.raises(ConfigError, match="15 images, the old ones 16"):
        sampler.restratify(strata_of_sizes(8, 7))


@pytest.mark.usefixtures("untyped")
def test_what_is_no_strata_is_refused() -> None:
    with pytest.raises(ConfigError, match="strata is a Tensor; pass what cluster_by_class returns"):
        StratifiedSampler(torch.zeros(5), size=2)


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"size": 0}, "size=0 must lie between 1 and the number of images, 15"),
        ({"size": 16}, "size=16 must lie between 1 and the number of images, 15"),
        ({"size": 2.5}, r"size=2\.5 must be a whole number"),
        ({"size": 5, "seed": None}, "seed=None must be a whole number"),
        ({"size": 5, "role": "both"}, "role='both' must be"),
        ({"size": 5, "steps": 0}, "steps=0 must be at least 1"),
        ({"size": 5, "scheme": "fair"}, "scheme='fair' must be"),
        ({"size": 5, "rounding": "up"}, "rounding='up' must be"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        StratifiedSampler(strata_of_sizes(6, 9), **options)
