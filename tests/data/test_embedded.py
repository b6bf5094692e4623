"""The embedded data: domains, masks, and a confounder whose effect is known."""

import pytest
import torch

from cicf import ConfigError, DataError
from cicf.data.confounded import Confounded, confounded_digits
from cicf.data.demo import DOMAINS, _drawn, demo_digits, handwritten_digits
from cicf.data.domains import DomainDataset

QUICK_SEED = 0


@pytest.fixture(scope="module")
def demo() -> DomainDataset:
    return demo_digits(QUICK_SEED)


def test_demo_has_four_domains_of_all_digits(demo: DomainDataset) -> None:
    assert demo.domains == ("plain", "blended", "printed", "outline")
    assert demo.images.shape == (4 * 599, 3, 32, 32)
    for name in demo.domains:
        counts = demo.of(name).y.bincount(minlength=10)
        assert int(counts.sum()) == 599
        assert int(counts.min()) >= 40


def test_demo_is_the_same_each_time(demo: DomainDataset) -> None:
    again = _drawn.__wrapped__(QUICK_SEED)
    assert torch.equal(demo.images, again.images)
    assert torch.equal(demo.masks, again.masks)
    assert not torch.equal(demo.images, demo_digits(1).images)


def test_what_a_caller_does_to_the_demo_is_not_seen_by_others(demo: DomainDataset) -> None:
    own = demo_digits(QUICK_SEED)
    for part in (own.images, own.y, own.domain, own.masks):
        part.zero_()
    others = demo_digits(QUICK_SEED)
    assert torch.equal(others.images, demo.images)
    assert torch.equal(others.y, demo.y)
    assert torch.equal(others.domain, demo.domain)
    assert torch.equal(others.masks, demo.masks)


def test_no_handwritten_digit_is_in_two_domains(demo: DomainDataset) -> None:
    hand = demo.without("printed")
    ink, _ = handwritten_digits()
    shapes = {tuple(mask.flatten().tolist()) for mask in ink > 0.5}
    distinct = {tuple(mask.flatten().tolist()) for mask in hand.masks}
    assert len(distinct) == len(shapes)


def test_masks_cover_the_ink(demo: DomainDataset) -> None:
    share = demo.masks.double().mean(dim=(1, 2))
    assert share.min() > 0.02
    assert share.max() < 0.5
    plain = demo.of("plain")
    bright = plain.images[:, 0].double() / 255
    assert bright[plain.masks].mean() > 0.7
    assert bright[~plain.masks].mean() < 0.15


def test_domains_look_different(demo: DomainDataset) -> None:
    means = torch.stack([(demo.of(name).images / 255).mean() for name in DOMAINS])
    colour = torch.stack([(demo.of(name).images.double().std(dim=1)).mean() for name in DOMAINS])
    assert means[3] > 0.6 > 0.35 > means[0]
    assert colour[0] == 0
    assert colour[2] > colour[3] > 5


def test_items_are_unaugmented_images_with_class_and_domain(demo: DomainDataset) -> None:
    x, y, domain = demo[700]
    assert x.dtype == torch.uint8
    assert int(x.min()) < int(x.max())
    assert (y, domain) == (int(demo.y[700]), 1)
    assert torch.equal(x, demo[700][0])


def test_unknown_domain_is_named(demo: DomainDataset) -> None:
    with pytest.raises(DataError, match="'plian' is not a domain; did you mean 'plain'"):
        demo.of("plian")


@pytest.mark.parametrize("strength", [0.0, 0.5, 1.0])
def test_strength_is_the_share_that_follows_the_label(strength: float) -> None:
    data = confounded_digits(strength=strength)
    agrees = (data.confounder == data.y).double().mean()
    assert float(agrees) == pytest.approx(strength + (1 - strength) / 10, abs=0.05)


def test_reversed_and_independent_tests_break_the_tie() -> None:
    reversed_test = confounded_digits(strength=1.0, relation="reversed", part="test")
    independent = confounded_digits(strength=1.0, relation="independent", part="test")
    assert torch.equal(reversed_test.confounder, 9 - reversed_test.y)
    assert (independent.confounder == independent.y).double().mean() < 0.2
    assert torch.equal(reversed_test.y, independent.y)


def test_training_and_test_share_no_digit() -> None:
    train, test = (confounded_digits(strength=1.0, part=part) for part in ("train", "test"))
    assert len(train.y) + len(test.y) == 1797
    first = {tuple(ink.flatten().tolist()) for ink in train.ink}
    assert not any(tuple(ink.flatten().tolist()) in first for ink in test.ink)


@pytest.mark.parametrize("kind", ["colour", "background"])
def test_do_confounder_keeps_the_ink_and_do_cause_keeps_the_background(kind: str) -> None:
    data = confounded_digits(strength=1.0, kind=kind)
    other = data.do_confounder((data.confounder + 3) % 10)
    swapped = data.do_cause(data.ink.flip(0), data.y.flip(0))
    before, moved, replaced = (each.dataset() for each in (data, other, swapped))
    full = before.masks & (data.ink == 1)
    blank = ~(data.ink > 0) & ~(swapped.ink > 0)
    change = (before.images.double() - moved.images.double()).abs().amax(dim=1)
    assert torch.equal(before.y, moved.y)
    assert change[full].max() == 0
    assert change[data.ink == 0].mean() > 20
    assert torch.equal(replaced.y, before.y.flip(0))
    same = (before.images == replaced.images).all(dim=1)
    assert same[blank].all()


def test_background_alone_tells_the_label_when_tied() -> None:
    """A classifier that sees a corner only is right in training and wrong in the reversed test."""
    train = confounded_digits(strength=1.0).dataset()
    test = confounded_digits(strength=1.0, relation="reversed", part="test").dataset()

    def hue(data: DomainDataset) -> torch.Tensor:
        corner = data.images[:, :, :2, :2].double().mean(dim=(2, 3))
        return corner / corner.norm(dim=1, keepdim=True)

    centres = torch.stack([hue(train)[train.y == k].mean(dim=0) for k in range(10)])

    def accuracy(data: DomainDataset) -> float:
        guess = torch.cdist(hue(data), centres).argmin(dim=1)
        return float((guess == data.y).double().mean())

    assert accuracy(train) > 0.95
    assert accuracy(test) < 0.05


@pytest.mark.usefixtures("untyped")
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"strength": 1.2}, r"strength=1\.2 must be a share"),
        ({"strength": 0.5, "kind": "smell"}, "kind='smell' must be one of 'colour', 'background'"),
        ({"strength": 0.5, "relation": "loose"}, "relation='loose' must be one of"),
        ({"strength": 0.5, "part": "val"}, "part='val' must be one of"),
    ],
)
def test_bad_options_are_named(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        confounded_digits(**options)


def test_rendering_twice_gives_the_same_images() -> None:
    data: Confounded = confounded_digits(strength=0.9, kind="background")
    assert torch.equal(data.dataset().images, data.dataset().images)
