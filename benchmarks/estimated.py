"""What the error of g† adds to the loss that CICF minimises, for runs on a benchmark's images.

With g† of all training images L_CICF is the training loss at θ†, and ERM minimises the training
loss, too. What is CICF's own is what a batch adds to it: the mean of L(θ − α ĝ) over batches, minus
L(θ − α g†). `python benchmarks/estimated.py digits-dg-rebuilt data/digits-dg-rebuilt RUN...` prints
it for clustered and for random batches of the run's M, over training images of the sources, not
augmented, at the θ in which the run has ended.
"""

import sys
from collections.abc import Iterable
from copy import deepcopy

import torch
import torch.nn.functional as F
from sharpness import opened

import cicf
from cicf.core.draw import Samples
from cicf.data.clustering import cluster_dataset
from cicf.data.loader import batches
from cicf.methods.cicf import CicfConfig
from cicf.models import SplitModel
from cicf.report.sampling_gap import independent_batches, make_sampler, mean_and_error

CHUNK, DRAWS, JUDGED = 480, 50, 1440
"""Images at a time; batches that are drawn; images on which θ − α ĝ is judged."""


class Judge:
    """Holds a network at θ, and the loss of some images after virtual steps from there."""

    def __init__(self, model: SplitModel, alpha: float, judged: Samples) -> None:
        self._moved, self._judged = deepcopy(model), judged
        self._step = cicf.Intervention(model, alpha=alpha, h=model.h)

    def loss(self, inner: Iterable[Samples]) -> float:
        """Return the loss at θ − α ĝ, with the gradient of these images."""
        state = self._step.theta_dagger((each.x, each.y) for each in inner)
        self._moved.load_state_dict(state)
        with torch.no_grad():
            return float(F.cross_entropy(self._moved(self._judged.x), self._judged.y))


def main() -> None:
    """Print three lines for every run."""
    for each in opened(__doc__):
        method, m = (
            cicf.RunConfig.model_validate(each.record.config).method,
            each.record.setup.inner_size,
        )
        if not isinstance(method, CicfConfig) or m is None:
            sys.exit(f"{each.run} is no run of CICF; name one")
        images = each.images
        judge = Judge(each.model, method.alpha, each.batch(JUDGED))
        whole = judge.loss(batches(images, size=CHUNK))
        print(f"{each.run.name}: α = {method.alpha}, M = {m}, L(θ − α g†) = {whole:.4f}")
        strata = cluster_dataset(images)
        for kind in ("clustered", "random"):
            drawn = independent_batches(make_sampler(kind, strata, m=m, seed=0), DRAWS)
            losses = torch.tensor([judge.loss([images.batch(places)]) for places in drawn])
            added, error = mean_and_error(losses - whole)
            print(f"  {kind:<10} adds {added:+.4f} ± {error:.4f}")


if __name__ == "__main__":
    main()
