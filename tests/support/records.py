"""Records and folders of runs that were never trained, with accuracies of the test's own."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cicf.results import Evaluation, Protocol, Record, RunFolder, Score, Scored, Setup
from cicf.results.runs import FoundRun

IMAGES = 1000
"""Images of every domain, so that an accuracy may have one digit after the point."""
PACS = ("art_painting", "cartoon", "photo", "sketch")
SETUP = Setup(
    classes=("cat", "dog"),
    sources={},
    validation={},
    protocol=Protocol(name="hold-out", split="the given lists", part="none", tested=()),
    fingerprint="0123456789abcdef",
    inner_size=None,
    outer_size=84,
    steps_per_epoch=3,
    cut="Z_0",
    image_size=224,
    mean=(0.5, 0.5, 0.5),
    std=(0.5, 0.5, 0.5),
    notes=(),
    versions={"cicf": "0.1.0", "torch": "2.7.0"},
)


def scores(percents: Mapping[str, float]) -> dict[str, Score]:
    """Return the scores that have these percents, by domain."""
    return {
        name: Score(correct=round(percent * IMAGES / 100), total=IMAGES)
        for name, percent in percents.items()
    }


def scored(
    epoch: int,
    test: Mapping[str, float] | None,
    *,
    validation: Mapping[str, float] | None = None,
    dagger: Mapping[str, float] | None = None,
) -> Scored:
    """Return an epoch with these percents on the tested domains, of θ† too if there is one."""
    held = scores(validation or {"photo": 90.0})
    has_dagger = dagger is not None
    return Scored(
        epoch=epoch,
        validation=Evaluation(theta=held, theta_dagger=held if has_dagger else None),
        test=test
        and Evaluation(theta=scores(test), theta_dagger=scores(dagger) if has_dagger else None),
    )


def run(
    percent: float | Mapping[str, float],
    *,
    method: str = "erm",
    target: str = "sketch",
    source: str | None = None,
    seed: int = 0,
    data: str = "pacs",
    model: str = "resnet18",
    augment: str = "basic",
    domains: tuple[str, ...] = PACS,
    fingerprint: str = SETUP.fingerprint,
    part: Literal["all images", "official test part"] = "all images",
    versions: Mapping[str, str] = SETUP.versions,
    options: Mapping[str, Any] | None = None,
    path: str | None = None,
    **changes: object,
) -> FoundRun:
    """Return a finished run that held a domain out, or that trained on one alone."""
    tested = (target,) if source is None else tuple(name for name in domains if name != source)
    sources = {name: 90 for name in domains if name not in tested}
    percents = percent if isinstance(percent, Mapping) else dict.fromkeys(tested, percent)
    last = scored(5, percents)
    config = {
        "data": {"name": data, "target": None if source else target, "source": source},
        "model": {"name": model},
        "method": {"name": method},
        "seed": seed,
        "machine": {"device": "cpu"},
    }
    config["data"]["augment"] = augment
    for name, value in (options or {}).items():
        section, _, option = name.rpartition(".")
        (config.setdefault(section, {}) if section else config)[option] = value
    protocol = Protocol(
        name="leave-one-domain-out" if source is None else "single-source",
        split="the given lists",
        part=part,
        tested=tested,
    )
    setup = SETUP.model_copy(
        update={
            "sources": sources,
            "protocol": protocol,
            "fingerprint": fingerprint,
            "versions": dict(versions),
        }
    )
    fields: dict[str, Any] = {
        "run_id": f"{data}-{target}-{method}-{seed}",
        "config": config,
        "setup": setup,
        "deploy": "theta",
        "last": last,
        "best": last,
        "seconds": {"steps": 1.0},
    }
    name = path or f"{method}-{augment}-{source or target}-{seed}"
    return FoundRun(path=Path(name), record=Record(**{**fields, **changes}))


def whole(percents: Mapping[str, float], *, tests: bool, seed: int = 0) -> FoundRun:
    """Return a run that trained on images of all domains, tested on a part or not at all."""
    tested = tuple(percents) if tests else ()
    epoch = scored(1, percents if tests else None, validation=percents)
    part: Literal["official test part", "none"] = "official test part" if tests else "none"
    protocol = Protocol(name="hold-out", split="the given lists", part=part, tested=tested)
    made = run(0.0, seed=seed, last=epoch, best=epoch)
    setup = made.record.setup.model_copy(
        update={"protocol": protocol, "sources": dict.fromkeys(percents, 90)}
    )
    record = made.record.model_copy(update={"setup": setup})
    return FoundRun(path=Path(f"whole-{seed}"), record=record)


def write(folder: Path, run: FoundRun) -> Path:
    """Write the folder of a finished run below another, and return its path."""
    path = folder / run.path
    written = RunFolder(path)
    written.begin(run.record.config)
    written.write_setup(run.record.setup)
    written.finish(run.record)
    return path


def complete(
    percents: Mapping[int, Mapping[str, float]], *, method: str = "erm", augment: str = "basic"
) -> list[FoundRun]:
    """Return a run for every seed and target, with these percents."""
    return [
        run(percent, method=method, augment=augment, target=target, seed=seed)
        for seed, by_target in percents.items()
        for target, percent in by_target.items()
    ]
