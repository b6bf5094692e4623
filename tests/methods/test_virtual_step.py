"""α over a run: how it grows and shrinks, what is logged, and which one leads to θ†."""

import copy
import json
import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tests.support.methods import built, draw_for, given_for, layout, pictures, samples
from tests.support.tiny import config, write_images
from tests.training.test_resume import interrupt, outcome
from torch import nn

import cicf
from cicf.method import Method
from cicf.methods import METHODS
from cicf.training import OptimConfig
from cicf.training.updates import Updates
from cicf.virtual_step import VirtualStepConfig

DATA = pictures(3)
GIVEN = given_for(layout(), DATA, epochs=4, steps_per_epoch=3)
NAMES = ["cicf", "maml"]


def options(name: str = "cicf", **over: object) -> VirtualStepConfig:
    found = METHODS[name].model_validate({"alpha": 0.6, "max_step_ratio": math.inf, **over})
    assert isinstance(found, VirtualStepConfig)
    return found


def alphas(**over: object) -> list[float]:
    return [options(**over).alpha_at(step, GIVEN) for step in range(12)]


def logged(method: Method, *, steps: range) -> list[float]:
    """Return α of some steps as they log it."""
    optim = OptimConfig(lr=0.01, momentum=0.0, schedule="constant")
    updates = Updates(method, optim, epochs=1)
    draws = [draw_for(method, DATA, step=step) for step in steps]
    return [updates.take(draw, step=1, kept=lambda: "")["alpha"] for draw in draws]


def test_alpha_is_constant_unless_it_is_said_otherwise() -> None:
    assert alphas() == [0.6] * 12


def test_alpha_grows_linearly_step_by_step() -> None:
    found = alphas(alpha_ramp=2)
    assert found[:6] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    assert found[6:] == [0.6] * 6


def test_alpha_may_still_grow_when_the_run_ends() -> None:
    assert alphas(alpha_ramp=8) == pytest.approx([0.6 * step / 24 for step in range(1, 13)])


def test_cosine_shrinks_alpha_as_the_schedule_of_the_optimiser_does() -> None:
    optim = OptimConfig(lr=0.6, schedule="cosine")
    optimizer = optim.optimizer([nn.Parameter(torch.zeros(1))])
    scheduler, rates = optim.scheduler(optimizer, 4), []
    for _ in range(4):
        rates += [optimizer.param_groups[0]["lr"]] * 3
        optimizer.step()
        scheduler.step()
    assert alphas(alpha_schedule="cosine") == pytest.approx(rates)


def test_growth_and_cosine_are_multiplied() -> None:
    both = alphas(alpha_ramp=1, alpha_schedule="cosine")
    half = (1 + math.cos(math.pi / 4)) / 2
    assert both[:4] == pytest.approx([0.2, 0.4, 0.6, 0.6 * half])


@pytest.mark.parametrize("name", NAMES)
def test_steps_log_the_alpha_of_their_turn(name: str) -> None:
    method = built(options(name, alpha_ramp=2), layout(), DATA, steps_per_epoch=3)
    assert logged(method, steps=range(7)) == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.6])


def test_the_safeguard_lowers_what_the_schedule_asks_for() -> None:
    method = built(
        options(alpha=50.0, alpha_ramp=1, max_step_ratio=0.01), layout(), DATA, steps_per_epoch=3
    )
    found = logged(method, steps=range(3))
    assert all(0 < alpha < 50 / 3 for alpha in found)


@pytest.mark.parametrize("name", NAMES)
def test_alpha_goes_on_from_the_saved_state(name: str) -> None:
    chosen = options(name, alpha_ramp=2)
    first = built(chosen, layout(), DATA, steps_per_epoch=3)
    logged(first, steps=range(4))
    second = chosen.build(given_for(copy.deepcopy(first.model), DATA, steps_per_epoch=3))
    second.load_state_dict(first.state_dict())
    assert logged(second, steps=range(4, 6)) == pytest.approx([0.5, 0.6])


@pytest.mark.usefixtures("float64")
@pytest.mark.parametrize("is_loaded", [False, True])
@pytest.mark.parametrize(("steps", "alpha"), [(0, 0.1), (1, 0.1), (4, 0.4)])
def test_theta_dagger_takes_the_alpha_of_the_step_before(
    steps: int, alpha: float, is_loaded: bool
) -> None:
    chosen = options(alpha_ramp=2)
    method = built(chosen, layout(), DATA, steps_per_epoch=3)
    logged(method, steps=range(steps))
    if is_loaded:
        state = method.state_dict()
        method = chosen.build(given_for(method.model, DATA, steps_per_epoch=3))
        method.load_state_dict(state)
    batch = samples(DATA)
    loss = F.cross_entropy(method.model(batch.x), batch.y)
    named = dict(method.model.named_parameters())
    g = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
    dagger = method.theta_dagger([batch])
    assert dagger is not None
    for name, theta in named.items():
        torch.testing.assert_close(dagger[name], theta.detach() - alpha * g[name])


def rows_of(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == "step"]


@pytest.mark.parametrize("outer", [6, 7])
def test_a_run_shrinks_alpha_with_the_learning_rate(outer: int, tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    method = {"name": "maml", "alpha": 0.2, "alpha_schedule": "cosine", "max_step_ratio": math.inf}
    # Two domains cannot share 7 images evenly, so that an epoch has more steps than it seems.
    run = config(images, method=method, outer={"size": outer}, optim={"lr": 0.05})
    cicf.train(run, out=tmp_path / "run")
    rows = rows_of(tmp_path / "run")
    assert len(rows) == 18
    assert [row["alpha"] for row in rows] == pytest.approx([4 * row["lr"] for row in rows])


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_was_cut_off_goes_on_with_its_alpha(name: str, tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    method = {"name": name, "alpha": 0.2, "alpha_ramp": 2, "alpha_schedule": "cosine"}
    run = config(images, method={**method, "deploy": "theta_dagger"})
    cicf.train(run, out=tmp_path / "whole")
    for after in (3, 6, 4):
        interrupt(run, tmp_path / "parts", after=after)
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")
