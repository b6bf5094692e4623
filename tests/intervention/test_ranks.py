"""Several processes take the step of one."""

import copy
from typing import NamedTuple

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from tests.support.nets import conv_net, images, norm_net
from tests.support.unrolled import distance, stepped_gradients
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from cicf import ConfigError, Intervention, Terms, suggest_alpha

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("float64")]

SIZES = {"inner": (7, 5), "outer": (4, 3)}


def shard(size: tuple[int, int], seed: int, rank: int) -> tuple[Tensor, Tensor]:
    x, y = images(sum(size), seed)
    return x.split(size)[rank], y.split(size)[rank]


def scalar_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.cross_entropy(model(batch[0]), batch[1])


class HalfUsed(nn.Module):
    """Has a head that only one of the ranks uses."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(192, 4)
        self.left, self.right, self.unused = (nn.Linear(4, 3) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.tanh(self.stem(x.flatten(1)))
        first = x[:, 0, 0, 0] > 0
        out = torch.zeros(len(x), 3)
        for where, head in ((first, self.left), (~first, self.right)):
            if where.any():
                out = out.index_put((where,), head(z[where]))
        return out


def _step(rank: int, folder: str) -> None:
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    model, half, plain = torch.load(f"{folder}/models.pt", weights_only=False)
    inner, outer = (shard(size, seed, rank) for seed, size in enumerate(SIZES.values()))
    step = Intervention(model, alpha=0.3, h=["stem"], chunk=2)
    terms = step.backward(inner, outer)
    state = step.theta_dagger([inner])
    suggested = suggest_alpha(model, [inner]).alpha
    x = half_images(rank)
    Intervention(half, alpha=0.3).backward(x, x)
    inexact = Intervention(plain, alpha=0.3, loss=scalar_loss).backward(inner, outer)
    refused = ""
    try:
        Intervention(nn.parallel.DistributedDataParallel(conv_net()), alpha=0.1)
    except ConfigError as error:
        refused = str(error)
    gradients = stepped_gradients(model), stepped_gradients(half)
    torch.save(Report(*gradients, terms, state, inexact, refused, suggested), f"{folder}/{rank}.pt")
    dist.destroy_process_group()


def half_images(rank: int) -> tuple[Tensor, Tensor]:
    x, y = images(4, 7)
    x[:, 0, 0, 0] = 1 if rank == 0 else -1
    return x + rank, y


class Report(NamedTuple):
    """What one rank found."""

    gradients: dict[str, Tensor | None]
    half_used: dict[str, Tensor | None]
    terms: Terms
    state: dict[str, Tensor]
    scalar_terms: Terms
    refused: str
    suggested: float


class Run(NamedTuple):
    """The models before the step, and the report of each rank."""

    models: list[nn.Module]
    reports: list[Report]


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("ranks")
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    models = [conv_net(), HalfUsed(), conv_net()]
    torch.save(models, folder / "models.pt")
    spawn(_step, (str(folder),), nprocs=2)
    return Run(models, [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in (0, 1)])


def test_two_ranks_take_the_same_step_as_one(two_ranks: Run) -> None:
    models, reports = two_ranks
    alone = copy.deepcopy(models[0])
    whole = [images(sum(size), seed) for seed, size in enumerate(SIZES.values())]
    terms = Intervention(alone, alpha=0.3, h=["stem"]).backward(*whole)
    for report in reports:
        assert distance(report.gradients, stepped_gradients(alone)) < 1e-12
        torch.testing.assert_close(report.terms.outer_loss, terms.outer_loss)
        torch.testing.assert_close(report.terms.outer_loss_before, terms.outer_loss_before)
        torch.testing.assert_close(report.terms.step_ratio, terms.step_ratio)
        assert report.terms.is_exact


def test_two_ranks_store_the_theta_dagger_of_one(two_ranks: Run) -> None:
    models, reports = two_ranks
    expected = Intervention(models[0], alpha=0.3, h=["stem"]).theta_dagger(
        [images(sum(SIZES["inner"]), 0)]
    )
    for report in reports:
        assert distance(report.state, expected) < 1e-12


def test_two_ranks_suggest_the_alpha_of_one(two_ranks: Run) -> None:
    models, reports = two_ranks
    expected = suggest_alpha(models[0], [images(sum(SIZES["inner"]), 0)]).alpha
    assert all(report.suggested == pytest.approx(expected) for report in reports)


def test_parameter_used_on_one_rank_only_gets_its_gradient_on_both(two_ranks: Run) -> None:
    models, reports = two_ranks
    alone = copy.deepcopy(models[1])
    shards = [half_images(rank) for rank in (0, 1)]
    whole = tuple(torch.cat(parts) for parts in zip(*shards, strict=True))
    Intervention(alone, alpha=0.3).backward(whole, whole)
    for report in reports:
        assert report.half_used["unused.weight"] is None
        assert distance(report.half_used, stepped_gradients(alone)) < 1e-12


def test_scalar_loss_on_several_ranks_is_reported_as_inexact(two_ranks: Run) -> None:
    assert not any(report.scalar_terms.is_exact for report in two_ranks.reports)


def test_distributed_data_parallel_is_refused(two_ranks: Run) -> None:
    assert all(
        "wrapped in DistributedDataParallel" in report.refused for report in two_ranks.reports
    )


def test_one_rank_with_batch_statistics_is_exact() -> None:
    terms = Intervention(norm_net(), alpha=0.3).backward(images(8), images(4))
    assert terms.is_exact
