"""Accuracy against an option: which runs make a curve, and what its points and bars are."""

import csv
import math
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from tests.support.records import run

from cicf.core import ResultError
from cicf.report.ablation import ablation
from cicf.report.ablation_figure import HEAD, save_ablation
from cicf.results.runs import FoundRun

SAMPLING = {"method.sampling": "clusters", "method.order": 2, "clusters.per_class": 3}


def cicf(percent: float, *, m: int | None = 64, cut: str = "Z_0", **changes: Any) -> FoundRun:
    """Return a run with an inner batch; of ERM, without one."""
    options = {**SAMPLING, "inner.size": m, **changes.pop("options", {})}
    name = f"{m}-{cut}-{options}-{changes.get('target')}-{changes.get('seed', 0)}"
    found = run(percent, method="cicf", options=options, path=name, **changes)
    setup = found.record.setup.model_copy(update={"inner_size": m, "cut": cut})
    record = found.record.model_copy(update={"setup": setup})
    return found.model_copy(update={"record": record})


def both_targets(**points: tuple[float, float]) -> list[FoundRun]:
    """Return a run on sketch and one on photo for each M, m64=(on sketch, on photo)."""
    return [
        cicf(percent, m=int(name[1:]), target=target)
        for name, percents in points.items()
        for target, percent in zip(("sketch", "photo"), percents, strict=True)
    ]


def test_a_point_is_the_mean_over_seeds_with_its_standard_error_and_interval() -> None:
    values = {64: [70.0, 72.0, 75.0], 256: [71.0, 71.5, 77.0]}
    runs = [
        cicf(value, m=m, seed=seed)
        for m, group in values.items()
        for seed, value in enumerate(group)
    ]
    (curve,) = ablation(runs, "batch-size").curves
    assert [point.value for point in curve.points] == [64, 256]
    for point in curve.points:
        expected = stats.ttest_1samp(values[point.value], 0).confidence_interval(0.95)
        assert point.mean.mean == pytest.approx(sum(values[point.value]) / 3)
        assert (point.mean.low, point.mean.high) == pytest.approx((expected.low, expected.high))
        assert point.error == pytest.approx(stats.sem(values[point.value]))
    assert "mean over 3 seeds, target sketch; bars: ± one standard error" in curve.caption


def test_targets_weigh_the_same_and_only_seeds_vary() -> None:
    runs = both_targets(m64=(60.0, 90.0), m128=(70.0, 90.0))
    runs += [cicf(62.0, m=64, target="sketch", seed=1), cicf(72.0, m=128, target="sketch", seed=1)]
    (curve,) = ablation(runs, "batch-size").curves
    # (61 + 90) / 2; squares 2 with 1 degree of freedom; √(2 · (1/2 + 1)) / 2; t is 12.706.
    mean = curve.points[0].mean
    assert (mean.mean, mean.df, mean.n) == (75.5, 1, 3)
    assert curve.points[0].error == pytest.approx(3**0.5 / 2)
    assert mean.high == pytest.approx(75.5 + 12.7062 * 3**0.5 / 2, abs=1e-3)
    assert "mean over 2 targets (photo, sketch) of their means over 1–2 seeds" in curve.caption
    assert "over seeds within a target, pooled over them" in curve.caption


def test_one_seed_has_no_bars_and_says_so() -> None:
    (curve,) = ablation(both_targets(m64=(60.0, 90.0), m128=(70.0, 90.0)), "batch-size").curves
    assert curve.points[0].mean.low is None
    assert curve.points[0].error is None
    assert curve.caption.endswith("one seed: no bars")


def test_runs_that_differ_in_something_else_make_another_curve() -> None:
    runs = [cicf(70.0 + lr, m=m, options={"optim.lr": lr}) for m in (64, 128) for lr in (0.1, 0.2)]
    curves = ablation(runs, "batch-size").curves
    assert [curve.title for curve in curves] == [
        "ERM+CICF on pacs, resnet18 (optim.lr=0.1)",
        "ERM+CICF on pacs, resnet18 (optim.lr=0.2)",
    ]
    assert [len(curve.points) for curve in curves] == [2, 2]


@pytest.mark.parametrize(
    "changes", [{"fingerprint": "f"}, {"model": "resnet50"}, {"part": "official test part"}]
)
def test_runs_on_other_images_networks_or_protocols_never_share_a_curve(
    changes: dict[str, Any],
) -> None:
    runs = [cicf(70.0, m=64), cicf(71.0, m=128, **changes)]
    with pytest.raises(ResultError, match=r"no two of 2 runs differ in inner\.size alone"):
        ablation(runs, "batch-size")


@pytest.mark.parametrize(
    ("over", "runs", "order"),
    [
        ("batch-size", [cicf(1.0, m=m) for m in (128, 9, 64)], [9, 64, 128]),
        ("cut", [cicf(1.0, cut=c) for c in ("Z_10", "input", "Z_2")], ["input", "Z_2", "Z_10"]),
        (
            "sampling",
            [cicf(1.0, options={"method.sampling": s}) for s in ("clusters", "random")],
            ["random", "clusters"],
        ),
        (
            "clusters",
            [cicf(1.0, options={"clusters.per_class": k}) for k in ("auto", 5, 1)],
            [1, 5, "auto"],
        ),
        (
            "bound",
            [cicf(1.0, options={"method.max_step_ratio": r}) for r in ("Infinity", 0.02, 1)],
            [0.02, 1.0, math.inf],
        ),
        (
            "alpha-schedule",
            [cicf(1.0), cicf(1.0, options={"method.alpha_schedule": "cosine"})],
            ["constant", "cosine"],
        ),
        ("order", [cicf(1.0, options={"method.order": o}) for o in (2, 1)], [1, 2]),
    ],
)
def test_values_are_in_an_order_that_means_something(
    over: Any, runs: list[FoundRun], order: list[object]
) -> None:
    (curve,) = ablation(runs, over).curves
    assert [point.value for point in curve.points] == order


def test_erm_on_the_same_images_is_the_line_whatever_its_inner_batch_would_be() -> None:
    runs = both_targets(m64=(60.0, 90.0), m128=(70.0, 92.0))
    erm = [
        run(value, target=target, options={"inner.size": 7, "clusters.per_class": 9})
        for target, value in (("sketch", 61.0), ("photo", 80.0))
    ]
    (curve,) = ablation([*runs, *erm], "batch-size").curves
    assert curve.baseline is not None
    assert (curve.baseline.value, curve.baseline.mean.mean) == ("ERM", 70.5)
    differences = [point.difference for point in curve.points]
    assert [each.mean for each in differences if each] == pytest.approx([4.5, 10.5])


def test_differences_are_of_the_same_seed() -> None:
    runs = [cicf(v, m=m, seed=s) for m, v, s in ((64, 60.0, 0), (64, 70.0, 1), (128, 66.0, 0))]
    erm = [run(50.0, seed=0), run(59.0, seed=1), run(10.0, seed=2)]
    (curve,) = ablation([*runs, *erm], "batch-size").curves
    expected = stats.ttest_rel([60.0, 70.0], [50.0, 59.0]).confidence_interval(0.95)
    first = curve.points[0].difference
    assert first is not None
    assert (first.low, first.high) == pytest.approx((expected.low, expected.high))


@pytest.mark.parametrize("changes", [{"fingerprint": "f"}, {"options": {"optim.lr": 0.5}}])
def test_erm_trained_otherwise_is_no_line(changes: dict[str, Any]) -> None:
    runs = [cicf(70.0, m=64), cicf(71.0, m=128), run(60.0, **changes)]
    (curve,) = ablation(runs, "batch-size").curves
    assert curve.baseline is None


def test_erm_without_a_run_for_some_domain_is_no_line_and_that_is_said() -> None:
    runs = [*both_targets(m64=(60.0, 90.0), m128=(70.0, 90.0)), run(60.0, target="photo")]
    (curve,) = ablation(runs, "batch-size").curves
    assert curve.baseline is None
    assert "no line: ERM has no run for some of the domains" in curve.footnotes


def test_domains_that_a_value_lacks_are_left_out_for_all_and_named() -> None:
    runs = [*both_targets(m64=(60.0, 90.0), m128=(70.0, 90.0)), cicf(65.0, m=256, target="sketch")]
    found = ablation(runs, "batch-size")
    (curve,) = found.curves
    assert curve.domains == ("sketch",)
    assert [point.mean.mean for point in curve.points] == [60.0, 70.0, 65.0]
    assert len(found.skipped) == 2
    assert all("photo" in sentence for sentence in found.skipped)


def test_values_without_a_common_domain_make_no_curve() -> None:
    runs = [cicf(60.0, m=64, target="sketch"), cicf(60.0, m=128, target="photo")]
    with pytest.raises(ResultError, match="make some with cicf ablate DATA --over batch-size"):
        ablation(runs, "batch-size")


def test_the_same_cut_under_two_names_counts_once() -> None:
    runs = [
        cicf(70.0, options={"model.cut": None}),
        cicf(10.0, options={"model.cut": "Z_0"}),
        cicf(60.0, cut="Z_1", options={"model.cut": "Z_1"}),
    ]
    found = ablation(runs, "cut")
    assert [point.mean.mean for point in found.curves[0].points] == [70.0, 60.0]
    assert "which is shown" in found.skipped[0]


def test_clusters_of_runs_that_sample_at_random_are_no_values() -> None:
    runs = [
        cicf(70.0, options={"clusters.per_class": k, "method.sampling": "random"}) for k in (1, 2)
    ]
    with pytest.raises(ResultError, match=r"differ in clusters\.per_class alone"):
        ablation(runs, "clusters")


def test_the_figure_comes_with_its_numbers(tmp_path: Path) -> None:
    runs = [*both_targets(m64=(60.0, 90.0), m128=(70.0, 92.0)), run(50.0, target="photo")]
    runs += [run(51.0, target="sketch"), cicf(80.0, m=64, model="vgg"), cicf(1.0, m=9, model="vgg")]
    files = save_ablation(ablation(runs, "batch-size"), tmp_path / "figure", command="cicf x")
    assert [file.suffix for file in files] == [".pdf", ".svg", ".png", ".csv"]
    rows = list(csv.DictReader(files[-1].read_text().splitlines()))
    assert tuple(rows[0]) == HEAD
    means = {(r["model"], r["value"]): float(r["mean"]) for r in rows if r["kind"] == "mean"}
    assert means == {
        ("resnet18", "64"): 75.0,
        ("resnet18", "128"): 81.0,
        ("vgg", "9"): 1.0,
        ("vgg", "64"): 80.0,
    }
    lines = [float(row["mean"]) for row in rows if row["kind"] == "baseline"]
    assert lines == [50.5]
    (photo,) = (r for r in rows if r["domain"] == "photo" and r["value"] == "128")
    assert (photo["seeds"], photo["accuracies"]) == ("0", "92.0")
