"""What all methods keep to, whatever they do."""

import copy
from pathlib import Path

import pytest
import torch
from tests.support.methods import (
    LAYOUTS,
    SIDE,
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
)
from tests.support.tiny import config as tiny_run
from tests.support.tiny import write_images
from torch.nn.modules.batchnorm import _BatchNorm

import cicf
from cicf import DataError
from cicf.data.domains import DomainDataset
from cicf.data.folder import ONLY_DOMAIN
from cicf.data.loader import Evaluated
from cicf.experiment import events
from cicf.method import MethodConfig
from cicf.methods import (
    METHODS,
    CcsaConfig,
    CoralConfig,
    FactConfig,
    JigenConfig,
    MixStyleConfig,
    RscConfig,
)
from cicf.results.published import published_tables
from cicf.training import OptimConfig, Stepped

EVERY = sorted(METHODS)
GROWN = {"coral": 3.0, "ddaig": 4.0}
"""Methods that add little as long as a network is new, and how much larger its weights are then."""

ALMOST_ERM = ("crossgrad",)
"""Methods that hardly leave ERM: the public code's slope of an image is that of a mean loss."""

ERM_AT_FIRST = ("mmld",)
"""Methods whose schedule begins at nothing."""

WITHOUT: list[MethodConfig] = [
    CcsaConfig(weight=0.0),
    CoralConfig(gamma=0.0),
    FactConfig(eta=0.0, consistency=0.0),
    JigenConfig(weight=0.0, ordered=1.0),
    MixStyleConfig(p=0.0),
    RscConfig(share=0.0),
]
"""Methods whose terms have no weight; limits of another kind are tested beside the method."""


def defaults(name: str) -> MethodConfig:
    return METHODS[name].model_validate({})


def has_domains(name: str) -> bool:
    return METHODS[name].about.needs_domains


@pytest.mark.parametrize("backbone", LAYOUTS)
@pytest.mark.parametrize("name", EVERY)
def test_a_step_moves_every_network_by_finite_numbers(name: str, backbone: str) -> None:
    data = pictures(3)
    method = built(defaults(name), layout(backbone), data)
    moved = moved_by(method, draw_for(method, data))
    assert moved.isfinite().all()
    assert moved.norm() > 0


@pytest.mark.parametrize("num_domains", [2, 6])
@pytest.mark.parametrize("name", EVERY)
def test_there_may_be_two_to_six_domains(name: str, num_domains: int) -> None:
    data = pictures(num_domains)
    method = built(defaults(name), layout(), data)
    assert moved_by(method, draw_for(method, data)).isfinite().all()


@pytest.mark.parametrize("name", EVERY)
def test_a_batch_may_lack_a_class(name: str) -> None:
    whole = pictures(3)
    data = whole.subset((whole.y != 1).nonzero()[:, 0])
    method = built(defaults(name), layout(), data)
    assert moved_by(method, draw_for(method, data)).isfinite().all()


@pytest.mark.parametrize("name", [n for n in EVERY if n not in ("erm", *ALMOST_ERM)])
def test_a_method_is_not_erm_in_disguise(name: str) -> None:
    data, model = pictures(3), layout()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= GROWN.get(name, 1.0)
    # So short that nothing warms up, and at a rate that a walk of several steps bends at.
    method = built(defaults(name), copy.deepcopy(model), data, epochs=1)
    plain = built(defaults("erm"), model, data, epochs=1)
    if name in ERM_AT_FIRST:
        method.before_epoch(1, Evaluated(data, TRANSFORM))
    optim = OptimConfig(lr=0.1, momentum=0.0, weight_decay=0.0, schedule="constant")
    draw = draw_for(method, data)
    found = moved_by(method, draw, optim=optim)
    usual = moved_by(plain, draw._replace(inner=None), optim=optim)
    assert torch.cosine_similarity(found, usual, dim=0) < 0.999


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("name", ALMOST_ERM)
def test_a_method_that_is_close_to_erm_differs_by_more_than_rounding(name: str) -> None:
    data = pictures(3)
    method = built(defaults(name), layout(), data)
    plain = built(defaults("erm"), layout(), data)
    draw = draw_for(method, data)
    found, usual = moved_by(method, draw), moved_by(plain, draw)
    assert (found - usual).norm() > 1e-6 * usual.norm()


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("config", WITHOUT, ids=lambda config: str(config.name))
def test_without_what_it_adds_it_is_the_cross_entropy(config: MethodConfig) -> None:
    data = pictures(3)
    method = built(config, layout(), data)
    draw = draw_for(method, data)
    expected = cross_entropy_gradients(method.model, draw.outer)
    assert_same(gradients_of(method, draw), expected, atol=1e-12)


@pytest.mark.parametrize("name", EVERY)
def test_a_step_is_the_same_when_it_is_taken_again(name: str) -> None:
    data = pictures(3)
    first, second = (built(defaults(name), layout(), data) for _ in range(2))
    draw = draw_for(first, data)
    assert torch.equal(moved_by(first, draw), moved_by(second, draw))


@pytest.mark.parametrize("num_domains", [2, 3])
@pytest.mark.parametrize("name", EVERY)
def test_running_statistics_move_as_often_as_it_says(name: str, num_domains: int) -> None:
    data = pictures(num_domains)
    model = layout("resnet")
    method = built(defaults(name), model, data)
    if method.phases:
        last = sum(phase.epochs for phase in method.phases[:-1])
        method.before_epoch(last, Evaluated(data, TRANSFORM))
    moved_by(method, draw_for(method, data))
    norm = next(part for part in model.modules() if isinstance(part, _BatchNorm))
    once, each = METHODS[name].about.norm_updates
    assert norm.num_batches_tracked == once + each * num_domains


@pytest.mark.parametrize("name", EVERY)
def test_state_is_saved_and_comes_back(name: str) -> None:
    data = pictures(3)
    method = built(defaults(name), layout(), data)
    draws = [draw_for(method, data, step=step) for step in range(2)]
    moved_by(method, draws[0])
    model, state = copy.deepcopy(method.model), copy.deepcopy(method.state_dict())
    other = defaults(name).build(given_for(model, data))
    other.load_state_dict(state)
    model.train()
    assert other.sampling.inner == method.sampling.inner
    assert torch.equal(moved_by(other, draws[1]), moved_by(method, draws[1]))


@pytest.mark.parametrize("name", [name for name in EVERY if has_domains(name)])
def test_images_without_domains_are_refused_with_a_sentence(name: str, tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(
        images / "art",
        data={"target": None},
        method={"name": name},
        model={"name": "tests.support.tiny:with_stages"},
    )
    with pytest.raises(DataError, match="needs to know the domain of each image"):
        cicf.train(run, out=tmp_path / "run")


@pytest.mark.parametrize("name", [name for name in EVERY if not has_domains(name)])
def test_a_method_without_domain_labels_does_without(name: str) -> None:
    data = pictures(2)
    alone = DomainDataset(
        data.images, data.y, torch.zeros_like(data.domain), data.classes, (ONLY_DOMAIN,)
    )
    method = built(defaults(name), layout(), alone)
    assert not method.needs_domains
    assert moved_by(method, draw_for(method, alone)).isfinite().all()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in EVERY if name not in ("erm", "maml", "cicf")])
def test_a_run_learns_and_one_that_was_cut_off_ends_as_if_it_had_not(
    name: str, tmp_path: Path
) -> None:
    images = write_images(tmp_path / "images")
    run = tiny_run(
        images,
        # The classes are mirror images of each other.
        data={"flips": False},
        method={"name": name},
        model={"name": "tests.support.tiny:with_stages"},
        epochs=4,
    )
    whole = cicf.train(run, out=tmp_path / "whole")
    # ERM gets all of them right.
    assert whole.accuracy("validation") >= 97
    assert whole.accuracy() > 60
    stopped = events(run, out=tmp_path / "parts")
    for event in stopped:
        if isinstance(event, Stepped) and event.step == 7:
            break
    stopped.close()
    assert cicf.train(run, out=tmp_path / "parts", resumes=True).last == whole.last
    first, second = (tmp_path / folder / "model.safetensors" for folder in ("whole", "parts"))
    assert first.read_bytes() == second.read_bytes()
    assert (tmp_path / "whole/metrics.jsonl").read_text() == (
        tmp_path / "parts/metrics.jsonl"
    ).read_text()


def test_the_images_of_these_tests_have_the_size_they_say() -> None:
    assert Evaluated(pictures(2), TRANSFORM).batch(torch.arange(3)).x.shape == (3, 3, SIDE, SIDE)


def test_every_row_of_the_papers_tables_can_be_filled() -> None:
    rows = [row for table in published_tables() for row in table.rows]
    assert len(rows) > 40
    assert {row.method for row in rows} <= METHODS.keys()
