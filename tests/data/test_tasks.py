"""The tasks of MAML: which images the blocks of a batch may hold."""

from typing import NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf import ConfigError
from cicf.data.samplers import Role
from cicf.data.tasks import Tasks, TaskSampler

quick = settings(max_examples=40, deadline=None)


def domains_of(*sizes: int) -> Tensor:
    """Return the domain of each image, in no order; the ids have gaps, as after a hold-out."""
    domain = (2 * torch.arange(len(sizes))).repeat_interleave(torch.tensor(sizes))
    return domain[torch.randperm(len(domain), generator=torch.Generator().manual_seed(0))]


class Pair(NamedTuple):
    """Holds the two samplers of a run, and the images that a task has in each of their batches."""

    domain: Tensor
    outer: TaskSampler
    inner: TaskSampler
    outer_block: int
    inner_block: int

    def blocks(self, step: int) -> list[tuple[int, Tensor, Tensor]]:
        """Return for each task its domain and its two batches."""
        ids = sorted(set(self.domain.tolist()))
        outer = self.outer.batch(step).reshape(len(ids), self.outer_block)
        inner = self.inner.batch(step).reshape(len(ids), self.inner_block)
        return list(zip(ids, outer, inner, strict=True))


@st.composite
def pairs(draw: st.DrawFn, tasks: Tasks) -> Pair:
    fewest = 1 if tasks == "within" else 2
    sizes = draw(st.lists(st.integers(2, 12), min_size=fewest, max_size=4))
    count, smallest = len(sizes), min(sizes)
    outer = draw(st.integers(1, smallest - 1 if tasks == "within" else smallest))
    others = sum(sizes) - max(sizes) if count > 1 else 0
    most = smallest - outer if tasks == "within" else min(others, sum(sizes) // count)
    inner = draw(st.integers(1, most))
    domain, seed = domains_of(*sizes), draw(st.integers(0, 1000))

    def sampler(role: Role) -> TaskSampler:
        return TaskSampler(
            domain,
            inner_size=count * inner,
            outer_size=count * outer,
            tasks=tasks,
            seed=seed,
            role=role,
        )

    return Pair(domain, sampler("outer"), sampler("inner"), outer, inner)


@quick
@given(pair=pairs("within"), step=st.integers(0, 50))
def test_within_both_batches_of_a_task_come_from_its_domain(pair: Pair, step: int) -> None:
    for domain, outer, inner in pair.blocks(step):
        assert set(pair.domain[torch.cat([outer, inner])].tolist()) == {domain}


@quick
@given(pair=pairs("within"), step=st.integers(0, 50))
def test_within_the_two_batches_of_a_task_never_share_an_image(pair: Pair, step: int) -> None:
    for _, outer, inner in pair.blocks(step):
        assert not set(outer.tolist()) & set(inner.tolist())


@quick
@given(pair=pairs("cross"), step=st.integers(0, 50))
def test_cross_the_outer_batch_of_a_task_comes_from_its_domain(pair: Pair, step: int) -> None:
    for domain, outer, _ in pair.blocks(step):
        assert set(pair.domain[outer].tolist()) == {domain}


@quick
@given(pair=pairs("cross"), step=st.integers(0, 50))
def test_cross_the_inner_batch_of_a_task_comes_from_other_domains(pair: Pair, step: int) -> None:
    for domain, _, inner in pair.blocks(step):
        assert domain not in pair.domain[inner].tolist()


@quick
@given(pair=pairs("within") | pairs("cross"), step=st.integers(0, 50))
def test_no_image_comes_twice_in_one_batch_of_a_task(pair: Pair, step: int) -> None:
    for _, outer, inner in pair.blocks(step):
        assert len(outer.unique()) == len(outer)
        assert len(inner.unique()) == len(inner)


@pytest.mark.parametrize("tasks", ["within", "cross"])
def test_every_image_of_a_domain_comes_up(tasks: Tasks) -> None:
    domain = domains_of(6, 9)
    for role in ("outer", "inner"):
        sampler = TaskSampler(domain, inner_size=4, outer_size=4, tasks=tasks, role=role)
        seen = torch.cat([sampler.batch(step) for step in range(60)])
        assert sorted(seen.unique().tolist()) == list(range(15))


def test_cross_draws_from_all_other_domains() -> None:
    domain = domains_of(8, 8, 8)
    sampler = TaskSampler(domain, inner_size=12, outer_size=3, tasks="cross", role="inner")
    first = torch.cat([domain[sampler.batch(step)[:4]] for step in range(20)])
    assert set(first.tolist()) == {2, 4}


def test_a_size_that_the_tasks_do_not_divide_is_rounded_down() -> None:
    sampler = TaskSampler(domains_of(9, 9, 9), inner_size=11, outer_size=5, role="inner")
    assert len(sampler.batch(0)) == 9


@pytest.mark.parametrize("role", ["outer", "inner"])
def test_a_batch_is_a_function_of_seed_and_step(role: Role) -> None:
    def sampler(seed: int) -> TaskSampler:
        return TaskSampler(domains_of(20, 30), inner_size=10, outer_size=8, seed=seed, role=role)

    straight, jumped = sampler(3), sampler(3)
    batches = [straight.batch(step).tolist() for step in range(6)]
    assert jumped.batch(5).tolist() == batches[5]
    assert jumped.batch(2).tolist() == batches[2]
    assert sampler(4).batch(5).tolist() != batches[5]
    assert len({tuple(batch) for batch in batches}) == 6


def test_a_sampler_goes_on_from_its_state() -> None:
    def sampler() -> TaskSampler:
        return TaskSampler(domains_of(9, 9), inner_size=4, outer_size=4, steps=4, role="inner")

    straight, resumed = sampler(), sampler()
    expected = list(straight)
    resumed.load_state_dict(straight.state_dict(step=1))
    assert list(resumed) == expected[1:]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tasks": "cross"}, "had tasks='within', this one has 'cross'"),
        ({"outer_size": 6}, "had outer_block=2, this one has 3"),
    ],
)
def test_the_state_of_a_sampler_of_other_batches_is_refused(
    options: dict[str, object], sentence: str
) -> None:
    given: dict[str, object] = {"inner_size": 4, "outer_size": 4, "role": "inner", "steps": 4}
    saved = TaskSampler(domains_of(9, 9), **given).state_dict()
    with pytest.raises(ConfigError, match=sentence):
        TaskSampler(domains_of(9, 9), **{**given, **options}).load_state_dict(saved)


def test_cross_with_one_domain_is_refused() -> None:
    with pytest.raises(ConfigError, match="needs at least two source domains, but there is one"):
        TaskSampler(domains_of(9), inner_size=3, outer_size=3, tasks="cross", role="inner")


@pytest.mark.parametrize(("tasks", "needs"), [("within", 6), ("cross", 5)])
def test_a_domain_with_too_few_images_is_refused(tasks: Tasks, needs: int) -> None:
    outer = needs - 1 if tasks == "within" else needs
    with pytest.raises(ConfigError, match=f"the 2 tasks needs {needs} images of its domain, but"):
        TaskSampler(
            domains_of(20, 4), inner_size=2, outer_size=2 * outer, tasks=tasks, role="outer"
        )


def test_too_few_images_in_the_other_domains_are_refused() -> None:
    with pytest.raises(ConfigError, match="needs 7 images of the other domains, but there are onl"):
        TaskSampler(domains_of(20, 6), inner_size=14, outer_size=2, tasks="cross", role="inner")


@pytest.mark.parametrize("role", ["outer", "inner"])
@pytest.mark.parametrize("sizes", [(2, 6), (6, 2)])
def test_a_batch_of_less_than_one_image_a_task_is_refused(
    sizes: tuple[int, int], role: Role
) -> None:
    name = "inner" if sizes[0] == 2 else "outer"
    with pytest.raises(ConfigError, match=rf"{name}\.size=2 is less than one image for each of th"):
        TaskSampler(domains_of(9, 9, 9), inner_size=sizes[0], outer_size=sizes[1], role=role)
