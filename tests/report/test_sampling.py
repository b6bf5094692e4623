"""What is measured of clustering-then-sampling, and what is said only where it was measured."""

import itertools
from collections.abc import Generator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import pytest
import torch
import torch.nn.functional as F
from tests.support.nets import norm_net
from torch import Tensor, nn

from cicf import ConfigError
from cicf.data.domains import DomainDataset
from cicf.data.loader import Evaluated
from cicf.data.samplers import RandomSampler
from cicf.data.strata import Strata, strata_of
from cicf.data.transforms import HALF, Transform
from cicf.maths.gram import coordinates
from cicf.models import SplitModel
from cicf.report.sampling import Answer, Images, pairs, sizes_for
from cicf.report.sampling_agreement import measured_agreement
from cicf.report.sampling_errors import (
    measured_errors,
    relative_difference,
    squared_deviations,
    verdict,
)
from cicf.report.sampling_figure import save_sampling
from cicf.report.sampling_gap import independent_batches, measured_gaps
from cicf.report.sampling_gradients import Estimated, Working, gradient_products
from cicf.report.sampling_text import error_table, sentences

N, CLASSES, K = 240, 4, 3


class Made(NamedTuple):
    """Holds gradients, and clusters of them."""

    g: Tensor
    strata: Strata


def made(
    *, class_part: float, cluster_part: float, is_shuffled: bool = False, seed: int = 0
) -> Made:
    """Return gradients with a part for their class, one for their cluster, and noise.

    Shuffled, the clusters of a class are as large as before, but have any of its images.
    """
    stream = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=stream, dtype=torch.float64)

    y, group = torch.arange(N) % CLASSES, torch.arange(N) // CLASSES % K
    cluster = y * K + group
    g = class_part * normal(CLASSES, 30)[y] + cluster_part * normal(CLASSES * K, 30)[cluster]
    if is_shuffled:
        for label in range(CLASSES):
            here = (y == label).nonzero()[:, 0]
            group[here] = group[here][torch.randperm(len(here), generator=stream)]
    return Made(g + normal(N, 30), strata_of(group, y))


def answer_of(case: Made, *, draws: int = 100) -> Answer:
    """Return what is measured of them."""
    products = case.g @ case.g.T
    cell = measured_errors(coordinates(products), case.strata, k=K, m=48, draws=draws, seed=0)
    return Answer(
        sources={"made": N},
        images=N,
        parameters=30,
        gradient_norm=1.0,
        k=K,
        m=48,
        gaps=tuple(measured_gaps(case.strata, k=K, m=48, draws=draws, seed=0)),
        cells=(cell,),
        cosines=measured_agreement(products, case.strata, resamples=100, seed=0),
    )


@pytest.fixture(scope="module")
def informative() -> Answer:
    return answer_of(made(class_part=1.0, cluster_part=2.0))


@pytest.fixture(scope="module")
def classes_only() -> Answer:
    return answer_of(made(class_part=2.0, cluster_part=0.0, is_shuffled=True))


@pytest.fixture(scope="module")
def nothing() -> Answer:
    # With seed 0 one interval leaves 0 out, as one in twenty does.
    return answer_of(made(class_part=0.0, cluster_part=0.0, is_shuffled=True, seed=1))


def test_clusters_that_tell_gradients_apart_are_said_to_lower_the_error(
    informative: Answer,
) -> None:
    text = " ".join(sentences(informative))
    assert "lies under that of random batches at K = 3, M = 48" in text
    assert "lies under that of class-weighted batches" in text
    assert "point more the same way within clusters than between clusters of the same class" in text
    assert "point more the same way within clusters than between any two clusters" in text
    assert "cannot" not in text


def test_of_classes_without_clusters_only_the_classes_are_credited(classes_only: Answer) -> None:
    text = " ".join(sentences(classes_only))
    assert "lies under that of random batches" in text
    assert "and of class-weighted batches cannot be told apart" in text
    assert "between clusters of the same class" in text
    assert "They point more the same way within clusters than between any two clusters" in text
    assert text.count("cannot be said") == 1


def test_of_random_clusters_nothing_is_claimed(nothing: Answer) -> None:
    text = " ".join(sentences(nothing))
    assert "lies under" not in text
    assert text.count("cannot be told apart") == 2
    assert text.count("cannot be said: the interval contains 0") == 2
    assert "They point" not in text.replace("That they point", "")


@pytest.mark.slow
def test_of_random_clusters_a_difference_is_seen_as_rarely_as_intervals_err() -> None:
    seen = 0
    for seed in range(20):
        g, strata = made(class_part=0.0, cluster_part=0.0, is_shuffled=True, seed=seed)
        cell = measured_errors(g, strata, k=K, m=24, draws=40, seed=seed)
        seen += sum(verdict(cell, kind) != "not told apart" for kind in cell.against)
    # Of 40 intervals 2 leave 0 out on average; more than 7 in one of a thousand times.
    assert seen <= 7


def test_chance_is_not_credited_where_both_kinds_are_drawn_alike() -> None:
    case = made(class_part=1.0, cluster_part=1.0)
    cell = measured_errors(case.g, case.strata.by_class, k=1, m=48, draws=20, seed=0)
    lucky = relative_difference(torch.linspace(1, 2, 50), torch.linspace(2, 3, 50))
    assert lucky.high is not None
    assert lucky.high < 0
    cell = cell._replace(against={"random": lucky, "class-weighted": lucky})
    assert verdict(cell, "random") == "below"
    assert verdict(cell, "class-weighted") == "not told apart"


def test_a_larger_error_and_a_smaller_cosine_are_said_plainly(informative: Answer) -> None:
    worse = relative_difference(torch.linspace(2, 3, 50), torch.linspace(1, 2, 50))
    series = dict(informative.head.series)
    series["clustered"] = series["clustered"]._replace(predicted=10.0)
    against = {"random": worse, "class-weighted": worse}
    cell = informative.head._replace(against=against, series=series)
    lower = informative.cosines.within._replace(value=-0.2, low=-0.3, high=-0.1)
    cosines = informative.cosines._replace(beyond_same_class=lower, left_out=2)
    text = " ".join(sentences(informative._replace(cells=(cell,), cosines=cosines)))
    assert verdict(cell, "random") == "above"
    assert "lies ABOVE that of random batches" in text
    assert "They point LESS the same way within clusters" in text
    assert "2 of 240 images have no gradient at all" in text


@pytest.mark.parametrize("case", ["informative", "classes_only", "nothing"])
def test_observed_errors_are_the_predicted_ones(case: str, request: pytest.FixtureRequest) -> None:
    answer = request.getfixturevalue(case)
    for series in answer.head.series.values():
        assert series.observed == pytest.approx(series.predicted, abs=4 * series.error)
    assert "agree within 3 standard errors in 3 of 3 cases" in " ".join(sentences(answer))


def test_a_prediction_that_fails_is_not_called_agreement(informative: Answer) -> None:
    series = informative.head.series
    wrong = {kind: each._replace(predicted=2 * each.observed) for kind, each in series.items()}
    cell = informative.head._replace(series=wrong)
    assert "in 0 of 3 cases" in " ".join(sentences(informative._replace(cells=(cell,))))


def test_difference_is_that_of_two_means_with_the_spread_of_their_ratio() -> None:
    stream = torch.Generator().manual_seed(0)
    others = 1 + 0.1 * torch.randn(4000, generator=stream)
    ours = 0.5 * others + 0.01 * torch.randn(4000, generator=stream)
    found = relative_difference(ours, others)
    assert found.mean == pytest.approx(100 * (float(ours.mean() / others.mean()) - 1), abs=1e-3)
    assert found.high - found.low == pytest.approx(2 * 1.96 * 1.0 / 4000**0.5, rel=0.1)


def test_without_an_interval_nothing_is_told_apart(informative: Answer) -> None:
    one = relative_difference(torch.zeros(1), torch.ones(1))
    cell = informative.head._replace(against={"random": one})
    assert verdict(cell, "random") == "not told apart"


def test_a_batch_of_all_images_has_no_error() -> None:
    case = made(class_part=1.0, cluster_part=1.0)
    cell = measured_errors(case.g, case.strata, k=K, m=N, draws=3, seed=0)
    for each in cell.series.values():
        assert each.observed == 0
        assert each.predicted == pytest.approx(0, abs=1e-6)
    assert {verdict(cell, kind) for kind in cell.against} == {"not told apart"}


def test_random_batches_of_half_the_images_are_independent_of_each_other() -> None:
    sampler = RandomSampler(20, size=10, seed=0, role="inner")
    first, second = independent_batches(sampler, 2)
    in_a_round = torch.cat([sampler.batch(0), sampler.batch(1)])
    assert len(in_a_round.unique()) == 20
    assert len(torch.cat([first, second]).unique()) < 20


def test_gap_by_chance_is_the_mean_over_all_batches() -> None:
    strata = strata_of([0, 0, 0, 1, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1, 1, 1])
    # Of 8 images 4 are drawn, so that N_k is 1.5, 1, 1, 0.5 before it is rounded.
    gaps = measured_gaps(strata, k=2, m=8, draws=2, seed=0)
    assert [each.by_chance for each in gaps] == [0.0, 0.0]
    found = {each.against: each for each in measured_gaps(strata, k=2, m=4, draws=400, seed=0)}
    expected = []
    for offset in range(8):
        places = [(edge * 4 + offset) // 8 for edge in (0, 3, 5, 7, 8)]
        counts = torch.tensor(places).diff()
        for batch in itertools.combinations(range(8), 4):
            drawn = strata.cluster[list(batch)].bincount(minlength=4)
            expected.append(int((counts - drawn).abs().sum()))
    assert found["random"].by_chance == pytest.approx(fmean(expected), abs=0.02)
    for each in found.values():
        assert each.mean == pytest.approx(each.by_chance, abs=4 * each.error)
    assert found["class-weighted"].mean < found["random"].mean


def test_classes_that_are_the_clusters_leave_no_gap_to_class_weighted_batches() -> None:
    strata = strata_of(torch.zeros(N, dtype=torch.int64), torch.arange(N) % CLASSES)
    random, weighted = measured_gaps(strata, k=1, m=50, draws=20, seed=0)
    assert (weighted.mean, weighted.error, weighted.by_chance) == (0, 0, 0)
    assert random.mean > 0


def test_images_without_a_gradient_are_left_out_of_the_cosines() -> None:
    case = made(class_part=1.0, cluster_part=1.0)
    kept = measured_agreement(case.g @ case.g.T, case.strata, resamples=20, seed=0)
    with_zeros = torch.cat([case.g, torch.zeros(2, 30, dtype=torch.float64)])
    cluster = torch.cat([case.strata.cluster, torch.tensor([0, 5])])
    strata = Strata(cluster, case.strata.label)
    found = measured_agreement(with_zeros @ with_zeros.T, strata, resamples=20, seed=0)
    assert found.left_out == 2
    assert found._replace(left_out=0) == kept
    none = measured_agreement(torch.zeros(N, N).double(), case.strata, resamples=5, seed=0)
    assert none.within.value is None
    assert none.left_out == N


def test_sizes_are_those_asked_for_or_those_that_fit() -> None:
    assert sizes_for(None, 512) == (16, 32, 64, 128, 256)
    assert sizes_for(None, 100) == (16, 32)
    assert sizes_for(None, 10) == (5,)
    assert sizes_for((64, 8), 64) == (8, 64)
    with pytest.raises(ConfigError, match="--m 65 must lie between 1 and 64"):
        sizes_for((65,), 64)


def test_sizes_vary_at_k_and_k_at_the_largest_size() -> None:
    assert pairs(3, (1, 3), (8, 16)) == ((3, 8), (3, 16), (1, 16))


def dataset(n: int) -> DomainDataset:
    stream = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 3, 8, 8), generator=stream, dtype=torch.uint8)
    domain = (torch.arange(n) >= n // 4).long()
    return DomainDataset(images, torch.arange(n) % 3, domain, ("a", "b", "c"), ("one", "two"))


def test_a_sample_keeps_the_shares_of_classes_and_domains() -> None:
    whole = Images(dataset(240), torch.arange(240.0)[:, None])
    part = whole.sample(60, seed=0)
    assert part.data.domain.bincount().tolist() == [15, 45]
    assert part.data.y.bincount().tolist() == [20, 20, 20]
    places = part.features[:, 0].long()
    assert torch.equal(part.data.y, whole.data.y[places])
    assert torch.equal(part.features, whole.sample(60, seed=0).features)
    assert not torch.equal(part.features, whole.sample(60, seed=1).features)
    assert whole.sample(240, seed=0) is whole


def finished(work: Generator[Working | Estimated, None, Tensor]) -> tuple[list[object], Tensor]:
    told: list[object] = []
    while True:
        try:
            told.append(next(work))
        except StopIteration as ended:
            return told, ended.value


class Branching(nn.Module):
    """Does one thing or another, by what it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(192, 3)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(x.flatten(1))
        return logits if x.sum() > 0 else -logits


def test_a_network_that_branches_on_values_is_refused_with_a_sentence() -> None:
    model = SplitModel(Branching(), cut="input", before=())
    data = Evaluated(dataset(9), Transform(8, *HALF))
    with pytest.raises(ConfigError, match="without branches on values"):
        finished(gradient_products(model, data, device=torch.device("cpu")))


@pytest.mark.slow
def test_gradients_are_those_of_autograd_for_what_lies_after_z() -> None:
    network = norm_net()
    network(torch.randn(16, 3, 8, 8))
    model = SplitModel(network, cut="stem", before=("stem", "norm1"))
    model.train()
    data = Evaluated(dataset(9), Transform(8, *HALF))
    after = [
        p
        for name, p in network.named_parameters()
        if name.split(".")[0] in ("body", "norm2", "head")
    ]
    most = 4 * 4 * sum(p.numel() for p in after)
    told, found = finished(
        gradient_products(model, data, device=torch.device("cpu"), most_bytes=most)
    )
    assert network.training
    assert isinstance(told[0], Estimated)
    assert (told[0].parameters, told[0].gradients) == (sum(p.numel() for p in after), 9 + 5 + 1)
    assert told[-1] == Working("gradients", 15, 15)
    network.eval()
    batch = data.batch(torch.arange(9))
    rows = []
    for x, y in zip(batch.x, batch.y, strict=True):
        gradient = torch.autograd.grad(F.cross_entropy(network(x[None]), y[None]), after)
        rows.append(torch.cat([each.flatten() for each in gradient]))
    g = torch.stack(rows).double()
    assert torch.allclose(found, g @ g.T, rtol=1e-4, atol=1e-6)
    drawn = torch.tensor([1, 4, 7])
    whole, part = (
        torch.autograd.grad(F.cross_entropy(network(batch.x[i]), batch.y[i]), after)
        for i in (torch.arange(9), drawn)
    )
    expected = sum(float((a - b).square().sum()) for a, b in zip(whole, part, strict=True))
    observed = squared_deviations(coordinates(found), [drawn])
    assert float(observed[0]) == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
def test_the_figure_has_its_data_beside_it(tmp_path: Path, informative: Answer) -> None:
    files = save_sampling(informative, tmp_path / "made", command="cicf sampling made")
    assert [file.suffix for file in files] == [".pdf", ".svg", ".png", ".csv"]
    lines = files[-1].read_text().splitlines()
    assert lines[0].startswith("part,K,clusters,M,of,equation,predicted,observed")
    assert [line.split(",")[0] for line in lines[1:]] == ["error"] * 3 + ["gap"] * 2 + [
        "cosine"
    ] * 3
    assert len(error_table(informative)[1]) == 3
