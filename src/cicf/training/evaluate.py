"""Scores per domain, at θ and at θ†."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from cicf.core.batch import to_device
from cicf.core.draw import Samples
from cicf.core.modes import evaluating
from cicf.data.domains import DomainDataset
from cicf.data.loader import Evaluated, batches
from cicf.data.transforms import Transform
from cicf.method import Method
from cicf.models.split import SplitModel
from cicf.results.record import Evaluation, Score, Scores, pooled

BATCH = 256


def scores(
    model: nn.Module, data: DomainDataset, transform: Transform, *, device: torch.device
) -> Scores:
    """Return the score of every domain that the data have images of."""
    correct = torch.zeros(len(data.domains), dtype=torch.int64)
    with evaluating(model), torch.inference_mode():
        for batch in batches(Evaluated(data, transform), size=BATCH):
            found = model(batch.x.to(device)).argmax(dim=1).cpu()
            correct += torch.bincount(batch.domain[found == batch.y], minlength=len(correct))
    totals = data.domain.bincount(minlength=len(correct))
    return {
        name: Score(correct=int(correct[d]), total=int(totals[d]))
        for d, name in enumerate(data.domains)
        if totals[d] > 0
    }


def mean_loss(
    model: nn.Module, data: DomainDataset, transform: Transform, *, device: torch.device
) -> float:
    """Return the mean cross-entropy of all images."""
    total = 0.0
    with evaluating(model), torch.inference_mode():
        for batch in batches(Evaluated(data, transform), size=BATCH):
            logits = model(batch.x.to(device))
            total += float(F.cross_entropy(logits, batch.y.to(device), reduction="sum"))
    return total / len(data)


def refresh_batch_norm(
    model: nn.Module,
    train: DomainDataset,
    transform: Transform,
    *,
    size: int,
    device: torch.device,
) -> bool:
    """Take the running statistics of batch norm anew, where it trains; tell whether there is any.

    They are the means over the batches of one pass through the un-augmented training set, in a
    fixed shuffle; dropout rests meanwhile.
    """
    norms = [each for each in _training_norms(model) if each.track_running_stats]
    momenta = [norm.momentum for norm in norms]
    if not norms:
        return False
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
    with _resting(model), torch.no_grad():
        for batch in _shuffled(train, transform, size, device):
            model(batch.x)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    return True


def at_theta_dagger(
    model: SplitModel,
    method: Method,
    train: DomainDataset,
    transform: Transform,
    *,
    size: int,
    device: torch.device,
) -> SplitModel | None:
    """Return a copy of the model at θ†, with g† over the whole un-augmented training set (Eq. 9).

    None for a method without a virtual step. Dropout rests meanwhile, so that g† is that of the
    network which will be used; batch norm keeps its mode, and sees a fixed shuffle of the images
    in batches of `size`.
    """
    with _resting(model):
        state = method.theta_dagger(_shuffled(train, transform, size, device))
    if state is None:
        return None
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    return twin


def evaluation(
    theta: nn.Module,
    theta_dagger: nn.Module | None,
    data: DomainDataset,
    transform: Transform,
    *,
    device: torch.device,
) -> Evaluation:
    """Return the scores of both."""
    return Evaluation(
        theta=scores(theta, data, transform, device=device),
        theta_dagger=None
        if theta_dagger is None
        else scores(theta_dagger, data, transform, device=device),
    )


def percents(found: Evaluation) -> dict[str, object]:
    """Return the accuracies of θ and of θ† in percent: by domain, and of all images."""
    return {"theta": _percents(found.theta), "theta_dagger": _percents(found.theta_dagger)}


def _percents(scores: Scores | None) -> dict[str, object] | None:
    if scores is None:
        return None
    by_domain = {name: score.percent for name, score in scores.items()}
    return {"all": pooled(scores).percent, "domains": by_domain}


def _shuffled(
    train: DomainDataset, transform: Transform, size: int, device: torch.device
) -> Iterator[Samples]:
    """Yield the un-augmented images in batches of a fixed shuffle."""
    # One image alone has no variance, so batch norm may refuse a last batch of one.
    while size < len(train) and (size == 1 or len(train) % size == 1):
        size += 1
    for batch in batches(Evaluated(train, transform), size=size, shuffle_seed=0):
        yield to_device(batch, device)  # type: ignore[misc]


def _training_norms(model: nn.Module) -> list[_BatchNorm]:
    return [part for part in model.modules() if isinstance(part, _BatchNorm) and part.training]


@contextmanager
def _resting(model: nn.Module) -> Iterator[None]:
    """Put everything but batch norm in evaluation mode for a while."""
    norms = _training_norms(model)
    with evaluating(model):
        for norm in norms:
            norm.training = True
        yield
