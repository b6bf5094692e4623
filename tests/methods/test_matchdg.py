"""MatchDG: the losses of its two phases, its matches, and how it goes from one to the other."""

import copy
import math
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from tests.support.methods import (
    TRANSFORM,
    assert_same,
    built,
    cross_entropy_gradients,
    draw_for,
    given_for,
    gradients_of,
    layout,
    moved_by,
    pictures,
    samples,
)
from tests.support.tiny import config as tiny_run
from tests.support.tiny import write_images
from torch import Tensor

import cicf
from cicf import ConfigError
from cicf.core.draw import Draw, Samples
from cicf.data.domains import DomainDataset
from cicf.data.loader import Evaluated
from cicf.experiment import events
from cicf.methods import CicfConfig, MatchDg, MatchDgConfig
from cicf.models.split import SplitModel
from cicf.results.folder import RunFolder
from cicf.training import Stepped

DATA = pictures(3)
IMAGES = Evaluated(DATA, TRANSFORM)
SHORT = MatchDgConfig(matching_epochs=2, weight=0.7)


def in_phase(
    number: int, config: MatchDgConfig = SHORT, data: DomainDataset = DATA, *, later: int = 0
) -> MatchDg:
    """Return the method at an epoch of its first or second phase."""
    method = built(config, layout(), data)
    assert isinstance(method, MatchDg)
    method.before_epoch(number * config.matching_epochs + later, Evaluated(data, TRANSFORM))
    return method


def forward(model: SplitModel, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return features and logits, part by part."""
    network = model.network
    features = network.flatten(network.block3(network.block2(network.block1(x))))
    return features, network.head(features)


def contrast_by_loops(model: SplitModel, batch: Samples, tau: float) -> float:
    """Return the mean loss over anchors and partners; three images after each other match."""
    rows = forward(model, batch.x)[0].detach().numpy()
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    similar = np.exp(rows @ rows.T / tau)
    y, losses = batch.y.tolist(), []
    for i in range(len(y)):
        negative = sum(similar[i, n] for n in range(len(y)) if y[n] != y[i])
        partners = [j for j in range(i // 3 * 3, i // 3 * 3 + 3) if j != i]
        losses += [-math.log(similar[i, j] / (similar[i, j] + negative)) for j in partners]
    return fmean(losses)


def agreement_by_loops(model: SplitModel, draw: Draw, weight: float) -> float:
    """Return the loss of the second phase, `weight` being λ times the ramp."""
    entropies = []
    for batch in (draw.outer, draw.inner):
        logits = forward(model, batch.x)[1].detach().numpy()
        logs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        entropies.append(fmean(-logs[i, y] for i, y in enumerate(batch.y.tolist())))
    pairs = [(i, j) for i in range(len(logits)) for j in range(i // 3 * 3, i)]
    distances = [float(((logits[i] - logits[j]) ** 2).sum()) for i, j in pairs]
    return sum(entropies) + weight * fmean(distances)


def slopes_of(model: SplitModel, loss: object, *, count: int = 2) -> dict[str, Tensor]:
    """Return the first derivatives by each parameter, by central differences."""
    found = {}
    for name, parameter in model.named_parameters():
        slopes = []
        for place in range(count):
            ends = []
            for step in (1e-5, -1e-5):
                with torch.no_grad():
                    parameter.view(-1)[place] += step
                    ends.append(loss())
                    parameter.view(-1)[place] -= step
            slopes.append((ends[0] - ends[1]) / 2e-5)
        found[name] = torch.tensor(slopes)
    return found


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("later", [0, 1])
def test_the_first_phase_minimises_the_contrast_of_matched_features(later: int) -> None:
    method = in_phase(0, SHORT.model_copy(update={"tau": 0.2}), later=later)
    draw = draw_for(method, DATA)
    expected = (later + 1) / 3 * contrast_by_loops(method.model, draw.inner, 0.2)
    assert float(method.backward(draw)["loss"]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.usefixtures("float64")
def test_the_gradient_of_the_first_phase_is_that_of_finite_differences() -> None:
    method = in_phase(0, SHORT.model_copy(update={"tau": 0.2}))
    draw, model = draw_for(method, DATA), method.model
    expected = slopes_of(model, lambda: contrast_by_loops(model, draw.inner, 0.2) / 3)
    found = gradients_of(method, draw)
    for name, slopes in expected.items():
        torch.testing.assert_close(found[name].flatten()[:2], slopes, rtol=0, atol=1e-7)


def test_the_first_phase_leaves_the_head_alone() -> None:
    method = in_phase(0)
    before = copy.deepcopy(method.model.state_dict())
    moved_by(method, draw_for(method, DATA))
    after = method.model.state_dict()
    assert {name for name in before if torch.equal(before[name], after[name])} == {
        "network.head.weight",
        "network.head.bias",
    }


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("later", [0, 3])
def test_the_second_phase_minimises_two_cross_entropies_and_a_distance(later: int) -> None:
    method = in_phase(1, later=later)
    draw = draw_for(method, DATA)
    expected = agreement_by_loops(method.model, draw, 0.7 * (later + 1) / 5)
    assert float(method.backward(draw)["loss"]) == pytest.approx(expected, abs=1e-10)


@pytest.mark.usefixtures("float64")
def test_the_gradient_of_the_second_phase_is_that_of_finite_differences() -> None:
    method = in_phase(1)
    draw, model = draw_for(method, DATA), method.model
    expected = slopes_of(model, lambda: agreement_by_loops(model, draw, 0.7 / 5))
    found = gradients_of(method, draw)
    for name, slopes in expected.items():
        torch.testing.assert_close(found[name].flatten()[:2], slopes, rtol=0, atol=1e-7)


@pytest.mark.usefixtures("float64")
def test_with_weight_0_it_is_the_cross_entropy_of_both_batches() -> None:
    method = in_phase(1, SHORT.model_copy(update={"weight": 0.0}))
    draw = draw_for(method, DATA)
    both = [cross_entropy_gradients(method.model, part) for part in (draw.outer, draw.inner)]
    expected = {name: value + both[1][name] for name, value in both[0].items()}
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.parametrize("phase", [0, 1])
def test_a_step_can_be_measured_before_there_are_matches(phase: int) -> None:
    config = MatchDgConfig(matching_epochs=1)
    method = config.build(given_for(layout(), DATA))
    draw = draw_for(method, DATA)
    assert draw.inner is not None
    assert len(draw.inner.y) == 18
    if phase:
        method.set_extra_state({"epoch": 1, "places": method.sampling.groups.places})
    for each in (draw, draw._replace(inner=None)):
        method.model.zero_grad()
        assert all(math.isfinite(float(value)) for value in method.backward(each).values())


@pytest.mark.parametrize("phase", [0, 1])
def test_gradients_add_up_and_parameters_stay(phase: int) -> None:
    method = in_phase(phase)
    draw, before = draw_for(method, DATA), copy.deepcopy(method.model.state_dict())
    once = gradients_of(method, draw)
    method.backward(draw)
    twice = {name: p.grad for name, p in method.model.named_parameters() if p.grad is not None}
    for name, value in twice.items():
        torch.testing.assert_close(value, 2 * once[name])
    assert all(torch.equal(before[name], v) for name, v in method.model.state_dict().items())


def test_a_batch_of_one_class_gives_the_first_phase_nothing_to_tell_apart() -> None:
    alike = DATA.subset((DATA.y == 1).nonzero()[:, 0])
    method = in_phase(0, data=alike)
    found = gradients_of(method, draw_for(method, alike, inner=9, outer=8))
    assert all(torch.equal(value, torch.zeros_like(value)) for value in found.values())


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("phase", [0, 1])
def test_a_class_that_a_domain_lacks_has_no_pair_there(phase: int) -> None:
    data = DATA.subset(((DATA.y != 1) | (DATA.domain != 2)).nonzero()[:, 0])
    method = in_phase(phase, SHORT.model_copy(update={"tau": 0.3}), data=data)
    draw = draw_for(method, data, inner=60)
    features, logits = (each.detach() for each in forward(method.model, draw.inner.x))
    domain, y = draw.inner.domain.tolist(), draw.inner.y.tolist()
    pairs = [
        (i, j)
        for i in range(len(y))
        for j in range(i // 3 * 3, i // 3 * 3 + 3)
        if domain[i] != domain[j]
    ]
    assert len(pairs) == 6 * (y.count(0) + y.count(2)) // 3 + 4 * y.count(1) // 3
    if phase:
        expected = fmean(float((logits[i] - logits[j]).square().sum()) for i, j in pairs)
        assert float(method.backward(draw)["distance"]) == pytest.approx(expected, abs=1e-10)
        return
    s = F.cosine_similarity(features[:, None], features[None], dim=2) / 0.3
    losses = []
    for i, j in pairs:
        negative = sum(math.exp(s[i, n]) for n in range(len(y)) if y[n] != y[i])
        losses.append(-math.log(math.exp(s[i, j]) / (math.exp(s[i, j]) + negative)))
    assert float(method.backward(draw)["contrast"]) == pytest.approx(fmean(losses), abs=1e-10)


def test_matches_are_random_at_first_and_nearest_by_the_features_then() -> None:
    config = MatchDgConfig(matching_epochs=7, rematches_every=3)
    method = built(config, layout(), DATA)
    first = method.sampling
    for epoch in (1, 2):
        method.before_epoch(epoch, IMAGES)
        assert method.sampling == first
    method.before_epoch(3, IMAGES)
    assert method.sampling != first
    assert torch.equal(method.sampling.groups.places, nearest_places(method.model))
    assert not torch.equal(method.sampling.groups.places, first.groups.places)


def nearest_places(model: SplitModel) -> Tensor:
    """Return all groups by loops: the base is domain 0, which comes first among equals."""
    features = forward(model, samples(DATA).x)[0].detach()
    rows = []
    for y in range(3):
        for base in range(len(DATA)):
            if DATA.y[base] != y or DATA.domain[base] != 0:
                continue
            row = [base]
            for domain in (1, 2):
                candidates = [
                    place
                    for place in range(len(DATA))
                    if DATA.y[place] == y and DATA.domain[place] == domain
                ]
                row.append(
                    min(candidates, key=lambda c: float((features[base] - features[c]).norm()))
                )
            rows.append(row)
    return torch.tensor(rows)


def test_the_second_phase_keeps_the_matches_of_the_network_that_the_first_ended_with() -> None:
    method = in_phase(1)
    expected = nearest_places(method.model)
    with torch.no_grad():
        for parameter in method.model.parameters():
            parameter.normal_()
    kept = method.sampling
    for epoch in (3, 4, 5, 10):
        method.before_epoch(epoch, IMAGES)
        assert method.sampling == kept
    assert torch.equal(kept.groups.places, expected)


def test_matching_leaves_the_network_as_it_was() -> None:
    model = layout("resnet").train()
    method = built(SHORT, model, DATA)
    before = copy.deepcopy(model.state_dict())
    method.before_epoch(2, IMAGES)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(part.training for part in model.modules())


def test_the_second_phase_starts_from_the_first_weights() -> None:
    found = SHORT.build(given_for(layout(), DATA)).phases
    assert [(phase.epochs, phase.starts_fresh) for phase in found] == [(2, False), (4, True)]


def test_the_matched_batch_consists_of_whole_groups_of_a_class() -> None:
    method = in_phase(1)
    batch = draw_for(method, DATA, inner=20).inner
    assert torch.equal(batch.domain, torch.tensor([0, 1, 2]).repeat(6))
    y = batch.y.view(-1, 3)
    assert torch.equal(y, y[:, :1].expand_as(y))


@pytest.mark.slow
def test_a_run_cut_off_in_either_phase_ends_as_if_it_had_not(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, method={"name": "matchdg"}, epochs=2)
    run = run.model_copy(update={"method": MatchDgConfig(matching_epochs=2, rematches_every=1)})
    cicf.train(run, out=tmp_path / "whole")
    for step in (9, 15, 21):
        stopped = events(run, out=tmp_path / f"{step}")
        for event in stopped:
            if isinstance(event, Stepped) and event.step == step:
                break
        stopped.close()
        cicf.train(run, out=tmp_path / f"{step}", resumes=True)
        for name in ("model.safetensors", "metrics.jsonl"):
            whole, parts = (tmp_path / folder / name for folder in ("whole", f"{step}"))
            assert whole.read_bytes() == parts.read_bytes()


def test_one_domain_has_nothing_to_match_with(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, data={"target": None, "source": "art"}, method={"name": "matchdg"})
    with pytest.raises(ConfigError, match="needs images of at least 2 source domains"):
        cicf.train(run, out=tmp_path / "run")


def test_a_batch_smaller_than_a_group_is_refused_before_training(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, method={"name": "matchdg"}, inner={"size": 1})
    with pytest.raises(
        ConfigError, match=r"inner\.size=1 is less than a group of 2 matched images"
    ):
        cicf.train(run, out=tmp_path / "run")


def test_a_batch_of_whole_groups_says_so(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(images, method={"name": "matchdg"}, inner={"size": 7}, epochs=1)
    stopped = events(run, out=tmp_path / "run")
    next(event for event in stopped if isinstance(event, Stepped))
    stopped.close()
    notes = RunFolder(tmp_path / "run").setup().notes
    assert any(
        "inner.size is 6 instead of 7, because it holds whole groups" in note for note in notes
    )


def test_it_cannot_be_the_loss_inside_of_cicf() -> None:
    with pytest.raises(ConfigError, match="'matchdg' is more than a loss of one batch"):
        CicfConfig(base=MatchDgConfig()).build(given_for(layout(), DATA))


@pytest.mark.parametrize(
    "options",
    [{"matching_epochs": 0}, {"rematches_every": 0}, {"tau": 0.0}, {"weight": -1.0}],
    ids=lambda options: next(iter(options)),
)
def test_options_without_sense_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match=next(iter(options))):
        MatchDgConfig.model_validate(options)
