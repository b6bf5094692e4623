"""A run from its config to its record, in a folder that it can be resumed from."""

import json
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file

from cicf.config import RunConfig
from cicf.core import CicfError, ConfigError
from cicf.core.files import locked, remove_leftovers
from cicf.data.fingerprint import fingerprint as fingerprint_of
from cicf.experiment.build import make_plan
from cicf.experiment.data import kept, load_data, with_cache
from cicf.results.folder import RunFolder
from cicf.results.record import Evaluation, Parameters, Record, Scored, Scores, Selection
from cicf.training import Event, MachineConfig, Plan, Trainer
from cicf.training.checkpoint import Checkpoints, save_weights
from cicf.training.evaluate import scores

RUNS = Path("runs")


def train(config: RunConfig, *, out: Path | None = None, resumes: bool = False) -> Record:
    """Run a config to its end and return the record; for scripts and notebooks.

    The run lives in `out`, by default `runs/<run id>`. With `resumes` it goes on from its newest
    checkpoint, or starts where there is none; a run that has ended is not run again.
    """
    for event in events(config, out=out, resumes=resumes):
        if isinstance(event, Record):
            return event
    raise AssertionError("a run ends with its record")


def events(
    config: RunConfig, *, out: Path | None = None, resumes: bool = False
) -> Iterator[Event | RunFolder | Record]:
    """Run a config: yield its folder, then what training tells of, and the record at the end."""
    root = config.machine.cache_root()
    loaded = load_data(config.data, checks_images=config.machine.checks_images, cache_root=root)
    fingerprint = fingerprint_of(loaded.data)
    loaded = loaded._replace(data=with_cache(loaded.data, root, fingerprint))
    run_id = config.run_id(fingerprint)
    folder = RunFolder(RUNS / run_id if out is None else out)
    _check(folder, config, fingerprint, resumes=resumes)
    if folder.is_finished:
        yield folder
        yield folder.record()
        return
    has_checkpoint = Checkpoints(folder.checkpoints).newest_step() is not None
    plan = make_plan(config, loaded, fingerprint, is_resumed=has_checkpoint)
    trainer = Trainer(plan, folder, config.machine)
    with locked(folder.path):
        # Another process may have begun or ended the same run while this one got ready.
        _check(folder, config, fingerprint, resumes=resumes)
        if folder.is_finished:
            yield folder
            yield folder.record()
            return
        yield from _run(config, plan, trainer, folder, run_id)


def _run(
    config: RunConfig, plan: Plan, trainer: Trainer, folder: RunFolder, run_id: str
) -> Iterator[Event | RunFolder | Record]:
    remove_leftovers(folder.path)
    folder.begin(config.identity())
    if not folder.setup_file.exists():
        folder.write_setup(plan.setup)
    yield folder
    # As many as it was begun with, or the last bits would be others.
    torch.set_num_threads(folder.setup().threads or torch.get_num_threads())
    evaluated = plan.transform.evaluated_view
    try:
        yield from kept(
            [
                (plan.split.train, (evaluated, *plan.transform.trained_views)),
                (plan.split.validation, (evaluated,)),
            ]
        )
        yield from trainer.fit()
    except CicfError:
        # Nothing was trained yet: the mistake can be repaired and the same folder named again.
        if not folder.checkpoints.exists():
            folder.discard()
        raise
    # Only now: nothing has looked at the target before.
    yield from kept([(plan.split.test, (evaluated,))])
    last = best = _tested(trainer.epochs[-1], "last", plan, folder, config.machine)
    if trainer.best.epoch != last.epoch:
        best = _tested(trainer.best, "best", plan, folder, config.machine)
    record = Record(
        run_id=run_id,
        config=config.identity(),
        setup=folder.setup(),
        deploy=plan.deploy,
        last=last,
        best=best,
        epochs=tuple(
            _tested(each, each.epoch, plan, folder, config.machine)
            for each in (trainer.epochs if config.keeps_epochs else ())
        ),
        seconds=trainer.seconds,
        peak_memory=trainer.peak_memory,
    )
    deployed = load_file(folder.weights_file("last", plan.deploy))
    save_weights(folder.model_file, deployed, metadata=_metadata(config, plan))
    folder.finish(record)
    trainer.clear()
    yield record


def _check(folder: RunFolder, config: RunConfig, fingerprint: str, *, resumes: bool) -> None:
    """Refuse to touch a folder that holds something else."""
    if not folder.has_run:
        if folder.path.exists() and not _is_empty(folder.path):
            raise ConfigError(
                f"{folder.path} exists and holds no run; remove it, or name a new or an empty "
                "folder with --out"
            )
        return
    different = list(_differences(folder.config(), config.identity()))
    if different:
        name, old, new = different[0]
        raise ConfigError(
            f"{folder.path} holds a run with {name}={old!r}, but this one has {new!r}; "
            "name another folder with --out"
        )
    if folder.setup_file.exists() and folder.setup().fingerprint != fingerprint:
        raise ConfigError(
            f"{folder.path} holds a run on other images: they have changed since; "
            "name another folder with --out"
        )
    if not resumes:
        raise ConfigError(
            f"{folder.path} holds this run already; go on with --resume, or name another folder "
            "with --out"
        )


def _is_empty(path: Path) -> bool:
    """Tell whether a path is a folder in which nothing but hidden files lies."""
    return path.is_dir() and all(each.name.startswith(".") for each in path.iterdir())


def _differences(old: object, new: object, name: str = "") -> Iterator[tuple[str, object, object]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))
    elif json.dumps(old) != json.dumps(new):
        yield name, old, new


def _tested(
    scored: Scored, at: Selection | int, plan: Plan, folder: RunFolder, machine: MachineConfig
) -> Scored:
    """Score θ and θ† on the target, which nothing has looked at before."""
    test = plan.split.test
    if test is None:
        return scored

    def tested(parameters: Parameters) -> Scores:
        plan.model.network.load_state_dict(load_file(folder.weights_file(at, parameters)))
        return scores(plan.model, test, plan.transform, device=machine.torch_device())

    has_dagger = scored.validation.theta_dagger is not None
    found = Evaluation(
        theta=tested("theta"), theta_dagger=tested("theta_dagger") if has_dagger else None
    )
    return scored.model_copy(update={"test": found})


def _metadata(config: RunConfig, plan: Plan) -> dict[str, str]:
    """Return what a reader of the model's file needs to use it, as texts."""
    setup = plan.setup
    facts = {
        "model": config.model.name,
        "method": config.method.name,
        "parameters": plan.deploy,
        "classes": setup.classes,
        "image_size": setup.image_size,
        "mean": setup.mean,
        "std": setup.std,
    }
    # One entry: the order of several in the file would be another in every process.
    return {"cicf": json.dumps(facts)}
