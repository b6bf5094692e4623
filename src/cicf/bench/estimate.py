"""What a grid will cost, from steps that were taken and thrown away."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from cicf.bench.grid import Job
from cicf.core import CicfError
from cicf.core.draw import on_device
from cicf.core.replay import RandomSource
from cicf.data.fingerprint import fingerprint
from cicf.data.images import ImageFiles
from cicf.data.loader import Draws, Evaluated
from cicf.data.sampling import make_samplers
from cicf.data.strata import strata_of
from cicf.experiment.build import make_plan, make_transform
from cicf.experiment.data import Loaded, with_cache
from cicf.training import Plan
from cicf.virtual_step import InterventionMethod

LONG = 5.0
"""Seconds after which the first step is taken for the measured one."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """Holds what one run of a kind costs; evaluation and clustering are not in its seconds."""

    steps: int
    seconds_per_step: float
    bytes: int
    """What its folder holds when it has ended."""
    problem: str | None = None
    """Why it cannot be run, if that is known already."""

    @property
    def seconds(self) -> float:
        """Return the time of all steps."""
        return self.steps * self.seconds_per_step


def estimate(jobs: Iterable[Job], loaded: Loaded) -> dict[str, Estimate]:
    """Return the cost of a run for every kind among the jobs, measured on the first of the kind."""
    found: dict[str, Estimate] = {}
    for job in jobs:
        # A domain may have too few images for what others can be trained on.
        if job.kind in found and found[job.kind].problem is None:
            continue
        try:
            with RandomSource([job.config.machine.torch_device()]).unchanged():
                plan = make_plan(job.config, _with_cache(loaded, job), fingerprint="")
                found[job.kind] = _measured(plan, job)
        except CicfError as error:
            found[job.kind] = Estimate(0, 0.0, 0, problem=str(error))
        except Exception as error:  # a network of the user's own, or too little memory
            problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
            found[job.kind] = Estimate(0, 0.0, 0, problem=problem)
    return found


def _with_cache(loaded: Loaded, job: Job) -> Loaded:
    """Return the images with what other runs have decoded already, and nothing more."""
    transform = make_transform(job.config)
    data = with_cache(loaded.data, job.config.machine.cache_root(), fingerprint(loaded.data))
    if isinstance(data.images, ImageFiles) and data.images.store is not None:
        data.images.store.open((transform.evaluated_view, *transform.trained_views))
    return loaded._replace(data=data)


def _measured(plan: Plan, job: Job) -> Estimate:
    device = job.config.machine.torch_device()
    plan.model.to(device)
    plan.method.to(device)
    plan.model.train()
    train = plan.split.train
    # What a method draws, and in which turns, may come of what it does before an epoch.
    plan.method.before_epoch(0, Evaluated(train, plan.transform))
    # Which images are drawn does not change what a step costs, so the classes are clusters enough.
    strata = strata_of(train.y, train.y)
    samplers = make_samplers(plan.method.sampling, train, plan.sizes, strata=strata, seed=plan.seed)
    draws = Draws(train, plan.transform, samplers, seed=plan.seed)
    for step in range(2):
        began = time.perf_counter()
        for turn in plan.method.turns:
            turn.backward(on_device(draws[step], device))
        plan.model.zero_grad()
        if device.type != "cpu":
            torch.accelerator.synchronize()
        seconds = time.perf_counter() - began
        if seconds > LONG:
            break
    return Estimate(
        steps=plan.epochs * plan.setup.steps_per_epoch,
        seconds_per_step=seconds,
        bytes=_bytes(plan),
    )


def _bytes(plan: Plan) -> int:
    network: int = sum(value.nbytes for value in plan.model.network.state_dict().values())
    networks = 2 if isinstance(plan.method, InterventionMethod) else 1
    epochs = 2 + (plan.epochs if plan.keeps_epochs else 0)
    return network * (networks * epochs + 1)
