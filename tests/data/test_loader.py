"""Splits and draws."""

import threading

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from cicf import ConfigError, DataError, RandomSampler, Strata, StratifiedSampler
from cicf.core.draw import Draw, Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Draws, Evaluated, batches, iterate
from cicf.data.protocol import hold_out, leave_one_domain_out
from cicf.data.sampling import Samplers
from cicf.data.transforms import HALF, Transform


def dataset(per_cell: int = 10) -> DomainDataset:
    """Return three domains of two classes; each image is filled with its own number."""
    n = 6 * per_cell
    number = torch.arange(n)
    images = (number % 256).to(torch.uint8)[:, None, None, None].expand(n, 3, 8, 8)
    return DomainDataset(
        images, number % 2, number // (2 * per_cell), ("cat", "dog"), ("art", "photo", "sketch")
    )


def numbers(data: DomainDataset) -> set[int]:
    return set(data.images[:, 0, 0, 0].tolist())


def test_parts_are_disjoint_and_the_target_is_whole() -> None:
    data = dataset()
    split = leave_one_domain_out(data, "photo", validation=0.2, seed=1)
    assert split.test is not None
    assert numbers(split.test) == set(range(20, 40))
    assert not numbers(split.train) & numbers(split.validation)
    assert numbers(split.train) | numbers(split.validation) == set(range(60)) - set(range(20, 40))
    for domain in (0, 2):
        for label in (0, 1):
            held = (split.validation.domain == domain) & (split.validation.y == label)
            assert int(held.sum()) == 2


def test_split_is_the_same_for_the_same_seed() -> None:
    first, second, other = (hold_out(dataset(), seed=seed) for seed in (4, 4, 5))
    assert numbers(first.validation) == numbers(second.validation)
    assert numbers(first.validation) != numbers(other.validation)
    assert first.test is None


def test_every_class_of_a_domain_is_trained_on() -> None:
    split = hold_out(dataset(per_cell=2), validation=0.9)
    assert len(split.train) == len(split.validation) == 6
    alone = hold_out(dataset(per_cell=1), validation=0.9)
    assert len(alone.train) == 6


def test_splits_that_make_no_sense_are_refused() -> None:
    data = dataset()
    with pytest.raises(DataError, match="'foto' is not a domain; did you mean 'photo'"):
        leave_one_domain_out(data, "foto")
    with pytest.raises(ConfigError, match=r"validation=1\.0 must be a share"):
        hold_out(data, validation=1.0)
    one = DomainDataset(data.images, data.y, torch.zeros_like(data.y), data.classes, ("all",))
    with pytest.raises(DataError, match="one domain only, 'all'"):
        leave_one_domain_out(one, "all")


def draws(augment: str = "basic") -> Draws:
    data = dataset()
    strata = Strata(torch.arange(60) % 6, torch.arange(6) % 2)
    return Draws(
        data,
        Transform(8, *HALF, augment=augment),
        Samplers(RandomSampler(60, size=8, seed=3), StratifiedSampler(strata, size=12, seed=3)),
        seed=3,
    )


def same(a: Draw, b: Draw) -> bool:
    pairs = zip((*a.outer, *(a.inner or ())), (*b.outer, *(b.inner or ())), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("augment", ["basic", "autoaugment"])
def test_a_draw_depends_on_its_step_alone(num_workers: int, augment: str) -> None:
    straight = [draws(augment)[step] for step in range(5)]
    torch.rand(7)
    resumed = list(iterate(draws(augment), start=2, stop=5, num_workers=num_workers))
    assert len(resumed) == 3
    assert all(same(a, b) for a, b in zip(straight[2:], resumed, strict=True))


def test_reading_draws_leaves_the_random_state_alone() -> None:
    before = torch.get_rng_state()
    list(iterate(draws(), start=0, stop=2))
    assert torch.equal(before, torch.get_rng_state())


def test_images_labels_and_domains_belong_together() -> None:
    draw = draws(augment="none")[4]
    assert draw.inner is not None
    for samples in (draw.outer, draw.inner):
        pixels = (samples.x[:, 0, 0, 0] * 0.5 + 0.5) * 255
        assert torch.equal(pixels.round().long(), samples.place)
        assert torch.equal(samples.y, samples.place % 2)
        assert torch.equal(samples.domain, samples.place // 20)


def test_one_image_is_augmented_differently_in_different_places() -> None:
    data = dataset()
    noise = torch.randint(256, (60, 3, 8, 8), dtype=torch.uint8)
    data = DomainDataset(noise, data.y, data.domain, data.classes, data.domains)
    transform = Transform(8, *HALF, augment="basic")
    every = Draws(data, transform, Samplers(RandomSampler(60, size=60), None), seed=0)
    first, second = every[0], every[1]
    assert first.inner is None
    of_first, of_second = (
        {int(i): x for i, x in zip(d.outer.place, d.outer.x, strict=True)} for d in (first, second)
    )
    changed = sum(not torch.equal(of_first[i], of_second[i]) for i in range(60))
    assert 30 < changed <= 60


class Failing(Draws):
    """Cannot make the draw of step 3."""

    def __getitem__(self, step: int) -> Draw:
        if step == 3:
            raise DataError("step 3 cannot be drawn")
        return super().__getitem__(step)


def failing() -> Failing:
    sampler = RandomSampler(60, size=8, seed=3)
    return Failing(dataset(), Transform(8, *HALF), Samplers(sampler, None), seed=3)


def test_what_goes_wrong_in_a_draw_is_told_where_it_is_asked_for() -> None:
    found = iterate(failing(), start=0, stop=9)
    for _ in range(3):
        next(found)
    with pytest.raises(DataError, match="step 3 cannot be drawn"):
        next(found)


def test_thread_that_reads_ahead_ends_with_its_reader() -> None:
    before = threading.active_count(), torch.get_num_threads()
    whole, closed = (iterate(draws(), start=0, stop=4) for _ in range(2))
    assert len(list(whole)) == 4
    next(closed)
    assert threading.active_count() == before[0] + 1
    closed.close()
    failed = iterate(failing(), start=2, stop=9)
    with pytest.raises(DataError):
        list(failed)
    assert (threading.active_count(), torch.get_num_threads()) == before


def test_draws_are_made_while_the_one_before_is_used() -> None:
    made = []

    class Watched(Draws):
        def __getitem__(self, step: int) -> Draw:
            made.append(step)
            done.set()
            return super().__getitem__(step)

    done = threading.Event()
    sampler = RandomSampler(60, size=8, seed=3)
    source = Watched(dataset(), Transform(8, *HALF), Samplers(sampler, None), seed=3)
    found = iterate(source, start=0, stop=9)
    next(found)
    while len(made) < 2:
        assert done.wait(timeout=5)
    assert made == [0, 1]
    found.close()


@pytest.mark.parametrize("shuffle_seed", [None, 4])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_batches_hold_every_image_as_it_is_evaluated(
    shuffle_seed: int | None, num_workers: int
) -> None:
    data = Evaluated(dataset(), Transform(8, *HALF))
    found = list(batches(data, size=25, num_workers=num_workers, shuffle_seed=shuffle_seed))
    assert [len(batch.y) for batch in found] == [25, 25, 10]
    assert sorted(torch.cat([batch.place for batch in found]).tolist()) == list(range(60))
    for batch in found:
        for x, y, domain, place in zip(*batch, strict=True):
            item = data[int(place)]
            assert torch.equal(x, item[0])
            assert (int(y), int(domain), int(place)) == item[1:]


def test_a_loader_gets_evaluated_images_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    original = Evaluated.batch

    def batch(self: Evaluated, places: Tensor) -> Samples:
        asked.append(len(places))
        return original(self, places)

    monkeypatch.setattr(Evaluated, "batch", batch)
    loader = DataLoader(Evaluated(dataset(), Transform(8, *HALF)), batch_size=32)
    shapes = [tuple(x.shape) for x, *_ in loader]
    assert shapes == [(32, 3, 8, 8), (28, 3, 8, 8)]
    assert asked == [32, 28]
