"""SWAD: where a valley starts and ends, what is averaged, and what a run makes of it."""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from tests.support.phased import FIRST
from tests.support.tiny import config, write_images
from tests.training.test_resume import interrupt, outcome
from torch import Tensor, nn

import cicf
from cicf import ConfigError
from cicf.experiment import events
from cicf.results import RunFolder
from cicf.training import AverageConfig, EpochEnded
from cicf.training.average import Valley, WeightAverage, find_valley

RULE = AverageConfig(name="swad")
curves = st.lists(st.floats(0.01, 2.0), max_size=40)


def written_out(losses: Sequence[float], rule: AverageConfig) -> tuple[int, int] | None:
    """Return t_s and t_e by the definition, line by line: N_s, N_e and r as in the paper.

    The last line is of the published code: where a run ends within a valley, its last models are
    taken one after the other while the least of the losses from there on is below the threshold.
    """
    v, start, threshold = np.array(losses), None, np.inf
    for i in range(len(v)):
        if start is None:
            if i >= rule.start - 1 and v[i - rule.start + 1] == v[i - rule.start + 1 : i + 1].min():
                start = i - rule.start + 1
                threshold = (1 + rule.tolerance) * v[start : i + 1].mean()
        elif i >= rule.end - 1 and v[i - rule.end + 1 : i + 1].min() > threshold:
            return start, i - rule.end
    if start is None:
        return None
    taken = [start]
    while taken[-1] + 1 < len(v) and v[taken[-1] + 1 :].min() <= threshold:
        taken.append(taken[-1] + 1)
    return start, taken[-1]


@settings(max_examples=400, deadline=None)
@given(
    curve=curves, start=st.integers(1, 4), more=st.integers(0, 3), r=st.sampled_from([0.05, 0.3])
)
def test_a_valley_is_what_the_definition_says(
    curve: list[float], start: int, more: int, r: float
) -> None:
    rule = AverageConfig(name="swad", start=start, end=start + more, tolerance=r)
    found = find_valley(curve, rule)
    assert (None if found is None else (found.first, found.last)) == written_out(curve, rule)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([], None),
        ([3, 2, 1], None),
        ([3, 2, 1, 0.9, 0.8], None),
        ([3, 2, 1, 1.1, 1.2], Valley(2, 4, has_ended=False)),
        ([1, 1, 1], Valley(0, 2, has_ended=False)),
        # The threshold is 1.3 · 1.1 = 1.43.
        ([1, 1.1, 1.2, 1.4, 1.5], Valley(0, 3, has_ended=False)),
        ([1, 1.1, 1.2, *[2] * 5], Valley(0, 2, has_ended=False)),
        ([1, 1.1, 1.2, *[2] * 5, 1.3], Valley(0, 8, has_ended=False)),
        ([1, 1.1, 1.2, *[2] * 6], Valley(0, 2, has_ended=True)),
        ([1, 1.1, 1.2, *[2] * 6, 1.0, 0.5], Valley(0, 2, has_ended=True)),
    ],
)
def test_valleys_that_can_be_seen(curve: list[float], expected: Valley | None) -> None:
    assert find_valley([float(loss) for loss in curve], RULE) == expected


@settings(max_examples=100, deadline=None)
@given(
    curve=st.lists(st.floats(0.5, 1.5), max_size=25),
    every=st.integers(1, 4),
    rest=st.integers(0, 3),
    seed=st.integers(0, 99),
)
def test_the_average_is_that_of_the_steps_in_the_valley(
    curve: list[float], every: int, rest: int, seed: int
) -> None:
    stream = np.random.default_rng(seed)
    path = stream.normal(size=(len(curve) * every + rest % every, 3))
    average, losses = WeightAverage(RULE, every=every), iter(curve)
    weight = nn.Parameter(torch.zeros(3, dtype=torch.float64))
    for place in path:
        weight.data = torch.from_numpy(place)
        average.after_step([weight], lambda: next(losses))
    found, valley = average.average(), written_out(curve, RULE)
    if not curve:
        assert found is None
        return
    assert found is not None
    first, last = valley or (len(curve) - 1, len(curve) - 1)
    expected = path[first * every : (last + 1) * every].mean(axis=0)
    np.testing.assert_allclose(found[0].numpy(), expected, rtol=0, atol=1e-12)


def test_an_average_goes_on_from_its_state_to_the_bit() -> None:
    def walked(interrupted_at: int | None) -> list[Tensor]:
        stream = torch.Generator().manual_seed(0)
        losses = iter([3, 2, 1, 1.1, 1.2, 5, 5, 1.2, 1.3, 9, 9, 9, 9, 9, 9, 1])
        average, weight = WeightAverage(RULE, every=3), nn.Parameter(torch.zeros(5))
        for step in range(48):
            if step == interrupted_at:
                state = copy.deepcopy(average.state())
                average = WeightAverage(RULE, every=3)
                average.restore(state, torch.device("cpu"))
            weight.data = torch.randn(5, generator=stream)
            average.after_step([weight], lambda: float(next(losses)))
        assert average.valley == Valley(2, 8, has_ended=True)
        return average.average() or []

    (whole,) = walked(None)
    for step in range(0, 48, 5):
        (found,) = walked(step)
        assert torch.equal(found, whole)


def test_after_a_valley_no_loss_is_asked_for() -> None:
    losses = iter([1.0, 1.0, 1.0, *[2.0] * 6])
    average, weight = WeightAverage(RULE, every=1), nn.Parameter(torch.zeros(1))
    for _ in range(30):
        average.after_step([weight], lambda: next(losses))
    assert average.valley == Valley(0, 2, has_ended=True)


def test_an_end_that_is_shorter_than_the_start_is_refused(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    with pytest.raises(ConfigError, match=r"average\.end=2 must be at least average\.start=3"):
        config(images, average={"name": "swad", "end": 2})
    with pytest.raises(ConfigError, match=r"average\.name='sma' cannot be"):
        config(images, average={"name": "sma"})


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("data") / "images")


def averaged(images: Path, **over: Any) -> cicf.RunConfig:
    average = {"name": "swad", "every": 2, "start": 2, "end": 2, **over.pop("average", {})}
    return config(images, average=average, **over)


def weights(folder: Path, name: str) -> dict[str, Tensor]:
    return load_file(folder / "weights" / f"{name}.safetensors")


def test_runs_keep_their_names_from_before_weights_could_be_averaged(images: Path) -> None:
    run = config(images)
    assert "average" not in run.identity()
    # It means nothing without a name.
    assert config(images, average={"every": 7}).run_id("") == run.run_id("")
    assert averaged(images).run_id("") != run.run_id("")
    assert averaged(images).identity()["average"]["every"] == 2


def followed(run: cicf.RunConfig, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Train, and return the parameters of the network after each step, and each loss."""
    from cicf.training import averaging

    path: list[Any] = []
    after_step, mean_loss = averaging.Averaging.after_step, averaging.mean_loss

    def stepped(self: averaging.Averaging, step: int) -> None:
        path.append({name: p.detach().clone() for name, p in self._plan.model.named_parameters()})
        after_step(self, step)

    def told(*given: Any, **options: Any) -> float:
        losses.append(mean_loss(*given, **options))
        return losses[-1]

    losses: list[float] = []
    monkeypatch.setattr(averaging.Averaging, "after_step", stepped)
    monkeypatch.setattr(averaging, "mean_loss", told)
    cicf.train(run, out=folder)
    return [path, losses]


@pytest.mark.parametrize("method", ["erm", "cicf"])
def test_a_run_stores_the_average_of_its_valley(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    run = averaged(images, method={"name": method}, epochs=4)
    path, losses = followed(run, tmp_path / "run", monkeypatch)
    assert (len(path), len(losses) <= 12) == (24, True)
    valley = written_out(losses, run.average)
    assert valley is not None
    first, last = valley[0] * 2, valley[1] * 2 + 2
    stored = weights(tmp_path / "run", "last-theta")
    for name in path[0]:
        mean = torch.stack([each[name].double() for each in path[first:last]]).mean(dim=0)
        found = stored[name.removeprefix("network.")].double()
        torch.testing.assert_close(found, mean, rtol=0, atol=1e-6)
    note = RunFolder(tmp_path / "run").record().setup.notes[-1]
    assert note == (
        f"the last weights are the average of steps {first + 1} to {last} (SWAD); batch norm's "
        "statistics are those of a pass through the training images"
    )


def test_the_steps_of_a_run_are_those_of_a_run_without_an_average(
    images: Path, tmp_path: Path
) -> None:
    cicf.train(averaged(images), out=tmp_path / "swad")
    cicf.train(config(images), out=tmp_path / "plain")
    rows = [
        [json.loads(row) for row in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("swad", "plain")
    ]
    assert rows[0][:-1] == rows[1][:-1]
    first, second = (weights(tmp_path / name, "last-theta") for name in ("swad", "plain"))
    assert not torch.equal(first["5.weight"], second["5.weight"])


def test_the_statistics_of_batch_norm_are_taken_anew(images: Path, tmp_path: Path) -> None:
    from cicf.data.loader import Evaluated, batches
    from cicf.experiment.build import make_plan
    from cicf.experiment.data import load_data

    run = averaged(images, method={"name": "erm"}, outer={"size": 9})
    cicf.train(run, out=tmp_path / "run")
    stored = weights(tmp_path / "run", "last-theta")
    plan = make_plan(run, load_data(run.data), "")
    x = [b.x for b in batches(Evaluated(plan.split.train, plan.transform), size=9, shuffle_seed=0)]
    assert [len(each) for each in x] == [9, 9, 9, 9]
    maps = [F.conv2d(each, stored["0.weight"], stored["0.bias"], stride=2) for each in x]
    mean = torch.stack([each.mean(dim=(0, 2, 3)) for each in maps]).mean(dim=0)
    variance = torch.stack([each.var(dim=(0, 2, 3)) for each in maps]).mean(dim=0)
    torch.testing.assert_close(stored["1.running_mean"], mean)
    torch.testing.assert_close(stored["1.running_var"], variance)
    assert stored["1.num_batches_tracked"] == 4


def test_theta_dagger_is_taken_from_the_average(images: Path, tmp_path: Path) -> None:
    from cicf.data.loader import Evaluated
    from cicf.experiment.build import make_plan
    from cicf.experiment.data import load_data

    # Batch norm rests, so that the gradient can be taken by hand.
    method = {"name": "cicf", "alpha": 0.3, "batch_norm": "frozen", "max_step_ratio": 99.0}
    model = {"name": "tests.support.runs:tiny_net", "cut": "input"}
    run = averaged(images, method=method, model=model)
    record = cicf.train(run, out=tmp_path / "run")
    assert record.deploy == "theta_dagger"
    theta, dagger = (weights(tmp_path / "run", f"last-{x}") for x in ("theta", "theta_dagger"))
    plan = make_plan(run, load_data(run.data), "")
    every = Evaluated(plan.split.train, plan.transform).batch(torch.arange(len(plan.split.train)))
    net = plan.model.network.eval()
    net.load_state_dict(theta)
    F.cross_entropy(net(every.x), every.y).backward()
    for name, parameter in net.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(dagger[name], theta[name] - 0.3 * parameter.grad)
    stored = load_file(tmp_path / "run" / "model.safetensors")
    assert all(torch.equal(stored[name], dagger[name]) for name in dagger)


def test_a_run_without_a_valley_stores_the_last_segment_and_says_so(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = averaged(images, method={"name": "erm"}, average={"every": 4, "start": 9, "end": 9})
    path, losses = followed(run, tmp_path / "run", monkeypatch)
    assert len(losses) == 4
    stored = weights(tmp_path / "run", "last-theta")
    mean = torch.stack([each["network.5.weight"] for each in path[12:16]]).mean(dim=0)
    torch.testing.assert_close(stored["5.weight"], mean)
    note = RunFolder(tmp_path / "run").record().setup.notes[-1]
    assert note.startswith(
        "no source validation loss was the least of itself and the next 8, so that the last "
        "weights are, as in the original, the average of the last segment, steps 13 to 16 (SWAD)"
    )


def test_a_run_shorter_than_a_segment_stores_its_last_weights_and_says_so(
    images: Path, tmp_path: Path
) -> None:
    over = {"method": {"name": "erm"}, "epochs": 1}
    cicf.train(averaged(images, average={"every": 99}, **over), out=tmp_path / "run")
    cicf.train(config(images, **over), out=tmp_path / "plain")
    notes = RunFolder(tmp_path / "run").record().setup.notes
    assert "less than the 99 steps of a segment, so that nothing was averaged (SWAD)" in notes[-1]
    found, expected = (weights(tmp_path / name, "last-theta") for name in ("run", "plain"))
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_by_default_a_run_has_fifty_segments(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = averaged(images, method={"name": "erm"}, epochs=17, average={"every": None, "end": 50})
    _, losses = followed(run, tmp_path / "run", monkeypatch)
    assert len(losses) == 51  # 17 · 6 = 102 steps, 2 each


@pytest.mark.slow
@pytest.mark.parametrize("method", ["erm", "cicf"])
def test_a_run_that_was_cut_off_ends_as_if_it_had_not_been(
    images: Path, tmp_path: Path, method: str
) -> None:
    run = averaged(images, method={"name": method}, average={"every": 3})
    cicf.train(run, out=tmp_path / "whole")
    for after in (2, 3, 4, 5, 4, 3):
        interrupt(run, tmp_path / "parts", after=after)
    assert not RunFolder(tmp_path / "parts").is_finished
    cicf.train(run, out=tmp_path / "parts", resumes=True)
    assert outcome(tmp_path / "parts") == outcome(tmp_path / "whole")


def test_only_the_last_phase_is_averaged(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = averaged(images, method={"name": "tests.support.phased:FreshConfig"})
    path, losses = followed(run, tmp_path / "run", monkeypatch)
    assert len(path) == 30
    assert len(losses) <= 9
    valley = written_out(losses, run.average)
    first, last = valley or (len(losses) - 1, len(losses) - 1)
    inside = path[FIRST * 6 + 2 * first : FIRST * 6 + 2 * last + 2]
    mean = torch.stack([each["network.5.weight"] for each in inside]).mean(dim=0)
    stored = weights(tmp_path / "run", "last-theta")
    torch.testing.assert_close(stored["5.weight"], mean, rtol=0, atol=1e-6)


def test_what_is_evaluated_last_is_the_average(images: Path, tmp_path: Path) -> None:
    run = averaged(images, method={"name": "erm"}, data={"validation": 0.5})
    told = [each for each in events(run, out=tmp_path / "run") if isinstance(each, EpochEnded)]
    loaded = cicf.open_run(tmp_path / "run")
    from cicf.experiment.build import make_split
    from cicf.experiment.data import load_data

    validation = make_split(run, load_data(run.data).data).validation
    assert loaded.scores(validation) == told[-1].validation.theta
