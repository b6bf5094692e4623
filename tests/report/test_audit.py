"""The measures of an audit: limit cases, and classifiers of which the answer is known."""

from math import sqrt

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest
from torch import Tensor

from cicf.data.confounded import Kind, Relation, confounded_digits
from cicf.report.audit import Measures, change, flips, measures, other_labels, probability, share
from cicf.report.audit import Responses as Table
from cicf.report.audit_confounded import (
    STRENGTHS,
    AuditedRun,
    Classifier,
    audited,
    held_out_digits,
    responses,
)

KINDS: tuple[Kind, ...] = ("colour", "background")


@given(st.integers(1, 200), st.data())
def test_interval_of_truths_is_wilsons(n: int, data: st.DataObject) -> None:
    right = data.draw(st.integers(0, n))
    found = share(torch.arange(n) < right)
    expected = binomtest(right, n).proportion_ci(method="wilson")
    assert found.value == pytest.approx(right / n)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_interval_of_shares_is_wider_than_that_by_t() -> None:
    values = torch.rand(400, generator=torch.Generator().manual_seed(0)).double()
    found = share(values)
    half = 1.97 * float(values.std()) / sqrt(len(values))
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value - half
    assert found.high > found.value + half


def test_change_is_paired() -> None:
    before = torch.tensor([0.1, 0.9, 0.5])
    found = change(before, before + 0.2)
    assert found.value == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2, abs=1e-6)


Y = torch.tensor([0, 1, 2, 2])
NEW_Y = torch.tensor([2, 0, 1, 0])
OBSERVED = torch.tensor([0, 1, 0, 2])


def means(found: Measures) -> dict[str, float]:
    return {name: float(values.mean()) for name, values in found._asdict().items()}


def test_reader_of_the_cause_alone_is_causal() -> None:
    found = measures(
        Table(Y[:, None].expand(-1, 3), NEW_Y[:, None].expand(-1, 3), Y, NEW_Y), OBSERVED
    )
    assert means(found) == {
        "accuracy": 1,
        "stays": 1,
        "kept_accuracy": 1,
        "misled": 0,
        "changes": 1,
        "new_accuracy": 1,
    }


def test_reader_of_the_confounder_alone_is_its_opposite() -> None:
    told = torch.arange(3).expand(4, -1)
    found = measures(Table(told, told, Y, NEW_Y), OBSERVED)
    # Of the images whose own value is not observed, the third, one in two others is its label.
    assert means(found) == {
        "accuracy": 0.75,
        "stays": 0,
        "kept_accuracy": 0.125,
        "misled": 1,
        "changes": 0,
        "new_accuracy": 0,
    }


def test_measures_are_of_the_values_that_are_not_observed() -> None:
    """One image before three confounders, of which the second is observed."""
    kept = torch.tensor([[5, 7, 7]])
    found = measures(
        Table(kept, torch.tensor([[7, 7, 5]]), torch.tensor([7]), torch.tensor([5])),
        torch.tensor([1]),
    )
    assert float(found.stays) == 0.5
    assert float(found.kept_accuracy) == 0.5
    assert float(found.accuracy) == 1
    assert float(found.changes) == 0
    assert float(found.new_accuracy) == 0


def test_partners_have_another_label() -> None:
    y = torch.tensor([0] * 50 + [1] * 3 + [2])
    partner = other_labels(y, torch.Generator().manual_seed(0))
    assert (y[partner] != y).all()
    assert torch.equal(partner, other_labels(y, torch.Generator().manual_seed(0)))


def ink_reader() -> Classifier:
    """Return the nearest template on what no hue changes, the darkest of the three colours."""
    train = confounded_digits(strength=1.0)
    templates, y = train.ink.flatten(1), train.y

    def classify(images: Tensor) -> Tensor:
        ink = (images.amin(dim=1) / 255).flatten(1)
        return y[torch.cdist(ink, templates).argmin(dim=1)]

    return classify


def paper_reader() -> Classifier:
    """Return the nearest hue of a corner, which no ink reaches."""
    train = confounded_digits(strength=1.0).rendered()
    hues = torch.stack([corner(train.images[train.y == k]).mean(dim=0) for k in range(10)])

    def classify(images: Tensor) -> Tensor:
        return torch.cdist(corner(images), hues).argmin(dim=1)

    return classify


def corner(images: Tensor) -> Tensor:
    found = images[:, :, :2, :].double().mean(dim=(2, 3))
    return found / found.norm(dim=1, keepdim=True)


def audit(classify: Classifier) -> AuditedRun:
    told = list(responses(classify, held_out_digits("colour", most=100)))
    assert told[:-1] == list(range(1, 11))
    found = told[-1]
    assert isinstance(found, Table)
    return audited("it", found, "colour")


def test_classifier_that_reads_the_ink_is_invariant_at_every_strength() -> None:
    run = audit(ink_reader())
    right = [found.percents[0] for found in run.estimates("accuracy").values()]
    assert all(found.value == 1 for found in run.estimates("stays").values())
    assert all(found.value > 0.95 for found in run.estimates("new_accuracy").values())
    assert all(found.value > 0.95 for found in run.estimates("changes").values())
    assert run.estimates("kept_accuracy") == run.estimates("accuracy")
    assert max(right) - min(right) < 1e-7 < 95 < min(right)
    assert run.estimates("misled")[0.0].value < 0.01


def test_classifier_that_reads_the_paper_is_never_invariant() -> None:
    run = audit(paper_reader())
    assert all(found.value == 0 for found in run.estimates("stays").values())
    assert all(found.value == 0 for found in run.estimates("changes").values())
    assert all(found.value == 1 for found in run.estimates("misled").values())
    right = {at: found.value for at, found in run.estimates("accuracy").items()}
    assert (right[-1.0], right[1.0]) == (0, 1)
    assert right[0.5] == pytest.approx(0.55, abs=0.1)
    assert list(right) == list(STRENGTHS)
    assert (
        run.estimates("kept_accuracy")[1.0].value == run.estimates("new_accuracy")[1.0].value == 0
    )
    assert run.estimates("kept_accuracy")[-1.0].value == pytest.approx(1 / 9)
    assert run.estimates("new_accuracy")[-1.0].value == pytest.approx(1 / 9, abs=0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("strength", [0.5, -1.0])
def test_responses_give_what_images_of_that_relation_give(kind: Kind, strength: float) -> None:
    """Read off the table of all confounders, or off images made with that relation."""

    def classify(images: Tensor) -> Tensor:
        return images.double().mean(dim=(2, 3)).argmax(dim=1) + 3 * (images[:, 0, 0, 0] > 90)

    digits = held_out_digits(kind, most=80)
    *_, found = responses(classify, digits)
    assert isinstance(found, Table)
    relation: Relation = "tied" if strength > 0 else "reversed"
    drawn = confounded_digits(strength=abs(strength), kind=kind, relation=relation, part="test")
    images = digits.do_confounder(drawn.confounder[:80]).rendered().images
    expected = classify(images) == drawn.y[:80]
    assert torch.equal(audited("it", found, kind).found[strength].accuracy.bool(), expected)


def test_differences_of_runs_are_paired() -> None:
    ink, paper = audit(ink_reader()), audit(paper_reader())
    found = ink.differences(paper, "stays")[1.0]
    assert (found.value, found.low, found.high) == (1, 1, 1)
    assert paper.differences(ink, "accuracy")[-1.0].value < -0.95


def test_images_that_flip_at_the_weakest_strength_come_first() -> None:
    plain = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.8, 0.2], [0.9, 0.1]])
    varied = torch.tensor(
        [
            [[0.9, 0.1], [0.9, 0.1], [0.0, 1.0]],  # flips at the strongest alone
            [[0.4, 0.6], [0.5, 0.5], [0.1, 0.9]],  # at the weakest, and loses 0.2
            [[0.1, 0.9], [0.2, 0.8], [0.1, 0.9]],  # at the weakest, and loses 0.7
            [[0.9, 0.1], [0.6, 0.4], [0.7, 0.3]],  # not at all
        ]
    )
    found = flips(plain, varied, torch.tensor([0, 0, 1]))
    assert [(flip.image, flip.variant) for flip in found] == [(2, 0), (1, 0), (0, 2)]
    assert [flip.level for flip in found] == [0, 0, 1]
    assert found[0].drop == pytest.approx(0.7)
    assert (found[0].before, found[0].after) == (0, 1)
    assert (found[0].sure, found[0].new_sure) == pytest.approx((0.8, 0.9))


def test_of_flips_of_one_strength_the_largest_drop_is_told() -> None:
    plain = torch.tensor([[0.9, 0.1]])
    varied = torch.tensor([[[0.4, 0.6], [0.2, 0.8]]])
    (flip,) = flips(plain, varied, torch.tensor([0, 0]))
    assert flip.variant == 1


def test_probability_is_that_of_the_class_of_each_image() -> None:
    rows = torch.arange(12.0).view(2, 2, 3)
    assert probability(rows, torch.tensor([2, 0])).tolist() == [[2, 5], [6, 9]]
