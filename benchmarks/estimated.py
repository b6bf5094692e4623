"""What the error of g† adds to the loss that CICF minimises, for runs on a benchmark's images.

With g† of all training images L_CICF is the training loss at θ†, and ERM minimises the training
loss, too. What is CICF's own is what a batch adds to it: the mean of L(θ − α ĝ) over batches, minus
L(θ − α g†). `python benchmarks/estimated.py digits-dg-rebuilt data/digits-dg-rebuilt RUN...` prints
it for clustered and for random batches of the run's M, over training images of the sources, not
augmented, at the θ in which the run has ended; and beside it what `maths.estimated` makes of the
errors of some of these batches, to second order.
"""

import sys
from collections.abc import Iterable

import torch
import torch.nn.functional as F
from sharpness import opened
from torch import Tensor
from torch.func import functional_call

import cicf
from cicf.core.draw import Samples
from cicf.data.clustering import cluster_dataset
from cicf.data.loader import batches
from cicf.maths.estimated import added_by_error
from cicf.maths.intervention import Parameters
from cicf.methods.cicf import CicfConfig
from cicf.models import SplitModel
from cicf.report.sampling_gap import independent_batches, make_sampler, mean_and_error

CHUNK, DRAWS, BENT, JUDGED = 480, 50, 15, 480
"""Images at a time; batches that are drawn, and for how many of them a second derivative is taken;
images on which θ − α ĝ is judged."""


class Judge:
    """Holds a network at θ, and the loss of some images after virtual steps from there."""

    def __init__(self, model: SplitModel, alpha: float, judged: Samples) -> None:
        self._model, self._alpha, self._judged = model, alpha, judged
        self._step = cicf.Intervention(model, alpha=alpha, h=model.h)

    def moved(self, inner: Iterable[Samples]) -> Parameters:
        """Return θ − α ĝ, with the gradient of these images."""
        state = self._step.theta_dagger((each.x, each.y) for each in inner)
        return {name: state[name] for name, _ in self._model.named_parameters()}

    def loss(self, parameters: Parameters) -> Tensor:
        """Return the loss of the judged images."""
        logits = functional_call(self._model, parameters, (self._judged.x,))
        return F.cross_entropy(logits, self._judged.y)

    def predicted(self, whole: Parameters, batch: Parameters) -> Tensor:
        """Return the same to second order, without the part that is 0 on average."""
        error = {name: (whole[name] - batch[name]) / self._alpha for name in whole}
        return added_by_error(self.loss, whole, error, self._alpha)


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
        whole = judge.moved(batches(images, size=CHUNK))
        with torch.no_grad():
            lost = judge.loss(whole)
        print(f"{each.run.name}: α = {method.alpha}, M = {m}, L(θ − α g†) = {float(lost):.4f}")
        strata = cluster_dataset(images)
        for kind in ("clustered", "random"):
            drawn = independent_batches(make_sampler(kind, strata, m=m, seed=0), DRAWS)
            moved = [judge.moved([images.batch(places)]) for places in drawn]
            with torch.no_grad():
                added = torch.stack([judge.loss(batch) for batch in moved]) - lost
            bent = torch.stack([judge.predicted(whole, batch) for batch in moved[:BENT]])
            print(
                f"  {kind:<10} adds {_shown(added)}; to second order {_shown(bent.detach())}",
                flush=True,
            )


def _shown(values: Tensor) -> str:
    mean, error = mean_and_error(values)
    return f"{mean:+.4f} ± {error:.4f}"


if __name__ == "__main__":
    main()
