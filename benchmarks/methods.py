"""What a step of every method costs against one of ERM: the Digits CNN on the embedded digits.

Images of 32 pixels, M^l = 84 and M = 256 for methods with an inner batch, three source domains. A
step is what a training takes of it: all turns with their optimisers and what the method does after.
What comes before is not in it: drawing images, clusters, what a method does before an epoch. The
methods take turns, each on a network of its own, and a cost is the median over rounds of the ratio
to ERM in the same round. Of a method with several phases it is a step of the last.
"""

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import machine
import torch
from contest import write_json

from cicf.core.draw import Draw
from cicf.data.loader import Draws, Evaluated
from cicf.data.sampling import make_samplers
from cicf.data.strata import strata_of
from cicf.experiment import recipe
from cicf.experiment.build import make_plan
from cicf.experiment.data import Loaded, load_data
from cicf.methods import METHODS
from cicf.training import Plan
from cicf.training.updates import Updates

BASELINE, TARGET, SIZE = "erm", "blended", 32
M, M_OUTER = 256, 84
DRAWN = 4
"""Draws that are made before, for the steps to take in turn."""


class Contestant:
    """Takes steps of one method by its defaults, on a network of its own."""

    def __init__(self, name: str, loaded: Loaded) -> None:
        values = {
            "data": {"target": TARGET, "image_size": SIZE, "augment": "none"},
            "method": {"name": name},
            "inner": {"size": M},
            "outer": {"size": M_OUTER},
        }
        self._plan = make_plan(recipe("demo", values), loaded, fingerprint="")
        self._plan.model.train()
        _begin_phases(self._plan)
        last = self._plan.phases[-1].epochs
        self._updates = Updates(self._plan.method, self._plan.optim, epochs=last)
        self._draws, self._count = _draws(self._plan), 0

    def seconds(self) -> float:
        """Return the time of one step."""
        draw = self._draws[self._count % DRAWN]
        self._count += 1
        began = time.perf_counter()
        self._updates.take(draw, step=self._count, kept=lambda: "nothing was kept")
        return time.perf_counter() - began


def _begin_phases(plan: Plan) -> None:
    images, epoch = Evaluated(plan.split.train, plan.transform), 0
    for phase in plan.phases:
        plan.method.before_epoch(epoch, images)
        epoch += phase.epochs


def _draws(plan: Plan) -> list[Draw]:
    train = plan.split.train
    # Which images are drawn does not change what a step costs.
    strata = strata_of(train.y, train.y)
    samplers = make_samplers(plan.method.sampling, train, plan.sizes, strata=strata, seed=0)
    draws = Draws(train, plan.transform, samplers, seed=0)
    return [draws[step] for step in range(DRAWN)]


def measured(names: Sequence[str], *, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of the steps of each method; the first round is not among them."""
    loaded = load_data(recipe("demo", {}).data)
    contestants = {name: Contestant(name, loaded) for name in names}
    seen: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name, contestant in contestants.items():
            seconds = contestant.seconds()
            if turn > 0:
                seen[name].append(seconds)
    return seen


def costs(seen: dict[str, list[float]]) -> dict[str, tuple[float, float]]:
    """Return milliseconds and cost against ERM of each method: medians over rounds."""
    return {
        name: (
            1000 * statistics.median(seconds),
            statistics.median(
                own / base for own, base in zip(seconds, seen[BASELINE], strict=True)
            ),
        )
        for name, seconds in seen.items()
    }


def main() -> None:
    """Print the table, and write it if asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    taken = parser.parse_args()
    names = list(dict.fromkeys([BASELINE, *taken.methods]))
    rounds = 3 if taken.quick else 15
    found = costs(measured(names, rounds=rounds))
    print(f"Digits CNN, {SIZE} pixels, M = {M}, M^l = {M_OUTER}, {rounds} rounds")
    print(f"  {'method':<16}{'ms a step':>10}{'against ERM':>13}")
    for name, (milliseconds, cost) in found.items():
        print(f"  {name:<16}{milliseconds:>10.1f}{cost:>13.2f}")
    print(f"{machine.summary()}, {torch.get_num_threads()} threads")
    write_json(taken.json, {"rounds": rounds, "milliseconds, cost against ERM": found})


if __name__ == "__main__":
    main()
