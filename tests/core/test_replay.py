"""Random states are captured once for as long as nothing is drawn, and draw the same again."""

import torch

from cicf.core.replay import RandomSource


def test_a_state_is_one_object_until_something_is_drawn() -> None:
    source = RandomSource()
    first = source.capture()
    assert source.capture() is first
    torch.rand(3)
    assert source.capture() is not first


def test_a_generator_of_ones_own_counts() -> None:
    own = torch.Generator()
    source = RandomSource(generators=[own])
    first = source.capture()
    torch.rand(3, generator=own)
    second = source.capture()
    assert second is not first
    source.restore(first)
    again = torch.rand(3, generator=own)
    source.restore(first)
    assert torch.equal(torch.rand(3, generator=own), again)


def test_a_state_that_was_captured_earlier_still_draws_the_same() -> None:
    source = RandomSource()
    first = source.capture()
    drawn = torch.rand(3)
    source.capture()
    torch.rand(5)
    source.restore(first)
    assert torch.equal(torch.rand(3), drawn)
