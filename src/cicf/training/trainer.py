"""Trainer: draw, gradient, optimiser step; after every epoch an evaluation and a checkpoint."""

import copy
from collections.abc import Iterator

from torch import nn

from cicf.core import DataError
from cicf.core.draw import Draw, on_device
from cicf.core.pace import Pace
from cicf.core.replay import RandomSource, RandomState
from cicf.data.loader import Draws, Evaluated, iterate
from cicf.data.sampling import Sampling, make_samplers
from cicf.data.strata import Strata
from cicf.models.split import SplitModel
from cicf.results.folder import RunFolder
from cicf.results.record import Scored, Selection, pooled
from cicf.training.averaging import Averaging
from cicf.training.checkpoint import Checkpoints, State, check_resumable, save_weights
from cicf.training.checks import check_weights, within_memory
from cicf.training.costs import Costs
from cicf.training.evaluate import at_theta_dagger, evaluation, percents
from cicf.training.events import EpochEnded, Event, Paced, Started, Stepped
from cicf.training.log import MetricsLog, open_board
from cicf.training.machine import MachineConfig
from cicf.training.plan import Plan
from cicf.training.updates import Updates


class Trainer:
    """Trains by a plan, from where the folder's newest checkpoint stands.

    Everything random is a function of the seed and the step or is in the checkpoint, so that an
    interrupted run ends with the same weights and the same metrics, to the bit.
    """

    _updates: Updates

    def __init__(self, plan: Plan, folder: RunFolder, machine: MachineConfig) -> None:
        self._plan, self._folder, self._machine = plan, folder, machine
        self._device = machine.torch_device()
        self._model, self._method = plan.model.to(self._device), plan.method.to(self._device)
        self._phase = -1
        is_kept = any(phase.starts_fresh for phase in plan.phases)
        self._initial: State = copy.deepcopy(self._model.state_dict()) if is_kept else {}
        self._random = RandomSource([self._device])
        self._averaging = Averaging(plan, self._device, self._random)
        self._checkpoints = Checkpoints(folder.checkpoints)
        self._step = 0
        self._strata: Strata | None = None
        self._epochs: list[Scored] = []
        self._twin: SplitModel | None = None
        self._pace: Pace | None = None
        self._source: Iterator[Draw] | None = None
        self._kind: tuple[Sampling, Strata | None] | None = None
        self._costs = Costs(self._method, self._device)

    @property
    def epochs(self) -> tuple[Scored, ...]:
        """Return what the networks of all evaluated epochs score on source validation."""
        return tuple(self._epochs)

    @property
    def best(self) -> Scored:
        """Return the evaluated epoch with the best source validation, the first in a tie."""
        return max(self._epochs, key=lambda each: _score(each, self._plan))

    @property
    def seconds(self) -> dict[str, float]:
        """Return the time by phase, over all parts of an interrupted run."""
        return self._costs.seconds

    @property
    def peak_memory(self) -> int | None:
        """Return the bytes that training took at most, of all parts; None where unknown."""
        return self._costs.peak_memory

    def fit(self) -> Iterator[Event]:
        """Train to the end, telling of every logged step and every epoch on the way."""
        self._costs.begin()
        setup, position = self._plan.setup, self._restored()
        if self._folder.setup_file.exists() and (pace := self._folder.setup().pace) is not None:
            self._pace = pace
            self._method.keep_pace(pace)
        board = (
            open_board(self._folder.path / "tensorboard", step=self._step + 1)
            if self._machine.tensorboard
            else None
        )
        self._log = MetricsLog(self._folder.metrics_file, position=position, board=board)
        if not any(part.training for part in self._model.modules()):
            self._model.train()
        try:
            yield Started(setup, self._step, self._plan.epochs * setup.steps_per_epoch)
            while self._step < self._plan.epochs * setup.steps_per_epoch:
                yield from self._train_epoch(self._step // setup.steps_per_epoch)
        finally:
            self._source = None
            self._log.close()

    def clear(self) -> None:
        """Remove the checkpoints, once the run has ended."""
        self._checkpoints.clear()

    def _train_epoch(self, epoch: int) -> Iterator[Event]:
        steps = self._plan.setup.steps_per_epoch
        if self._step % steps == 0:
            self._cluster(epoch)
            images = Evaluated(self._plan.split.train, self._plan.transform)
            self._method.before_epoch(epoch, images)
            self._enter_phase(self._plan.phase_of(epoch))
        for _ in range(self._step, (epoch + 1) * steps):
            with self._costs.of("data"):
                draw = self._next_draw()
            with self._costs.of("steps"):
                terms = self._take_step(draw)
            with self._costs.of("evaluation"):
                self._averaging.after_step(self._step)
            yield from self._paced()
            if self._plan.is_logged(self._step):
                self._log.write({"kind": "step", "step": self._step, "epoch": epoch + 1, **terms})
                yield Stepped(self._step, epoch + 1, terms)
            if self._step % self._machine.checkpoint_every == 0 and self._step % steps != 0:
                with self._costs.of("checkpoints"):
                    self._save()
        yield from self._end_epoch(epoch)

    def _take_step(self, draw: Draw) -> dict[str, float]:
        """Take a step of every optimiser, or stop where a gradient is not finite."""
        step = self._step + 1
        self._method.is_logged = self._plan.is_logged(step)
        with within_memory(self._plan, where=f"in step {step}", kept=self._kept):
            terms = self._updates.take(on_device(draw, self._device), step=step, kept=self._kept)
        self._step = step
        return terms

    def _updates_of(self, phase: int) -> Updates:
        plan = self._plan
        return Updates(self._method, plan.optim, epochs=plan.phases[phase].epochs)

    def _enter_phase(self, phase: int) -> None:
        """Begin with the optimisers of a phase, and with the first weights if it says so."""
        if phase == self._phase:
            return
        if self._plan.phases[phase].starts_fresh:
            self._model.load_state_dict(self._initial)
        self._phase, self._updates = phase, self._updates_of(phase)

    def _paced(self) -> Iterator[Paced]:
        """Write down how steps go through their batches, whenever that is not yet known."""
        pace = self._method.pace
        if pace is None or pace == self._pace:
            return
        self._pace = pace
        self._folder.write_setup(self._folder.setup().paced(pace, self._step))
        yield Paced(pace)

    def _kept(self) -> str:
        step = self._checkpoints.newest_step()
        kept = f"the checkpoint after step {step} is" if step else "nothing was"
        return f"{kept} kept in {self._folder.path}"

    def _check_weights(self, module: nn.Module) -> None:
        check_weights(module, step=self._step, folder=self._folder.path)

    def _end_epoch(self, epoch: int) -> Iterator[EpochEnded]:
        self._check_weights(self._model)
        self._updates.end_epoch()
        if not self._plan.is_evaluated(epoch + 1):
            with self._costs.of("checkpoints"):
                self._save()
            return
        with self._costs.of("evaluation"):
            found = self._evaluate(epoch + 1)
        self._check_weights(self._twin or self._model)
        self._epochs.append(found)
        is_best = self.best is found
        self._log.write(
            {
                "kind": "epoch",
                "step": self._step,
                "epoch": epoch + 1,
                "is_best": is_best,
                "validation": percents(found.validation),
            }
        )
        with self._costs.of("checkpoints"):
            self._keep_epoch(epoch + 1, is_best=is_best)
            self._save()
        yield EpochEnded(self._step, epoch + 1, found.validation, is_best)

    def _evaluate(self, epoch: int) -> Scored:
        plan, where = self._plan, f"in the evaluation after step {self._step}"
        with self._random.unchanged(), within_memory(plan, where=where, kept=self._kept):
            if epoch == plan.epochs:
                self._averaging.finish(self._folder)
            self._twin = at_theta_dagger(
                self._model,
                self._method,
                plan.split.train,
                plan.transform,
                size=plan.sizes.inner,
                device=self._device,
            )
            found = evaluation(
                self._model,
                self._twin,
                plan.split.validation,
                plan.transform,
                device=self._device,
            )
        return Scored(epoch=epoch, validation=found)

    def _keep_epoch(self, epoch: int, *, is_best: bool) -> None:
        if is_best:
            self._keep("best")
        if self._plan.keeps_epochs:
            self._keep(epoch)
        if epoch == self._plan.epochs:
            self._keep("last")

    def _keep(self, at: Selection | int) -> None:
        save_weights(self._folder.weights_file(at, "theta"), self._model.network.state_dict())
        if self._twin is not None:
            path = self._folder.weights_file(at, "theta_dagger")
            save_weights(path, self._twin.network.state_dict())

    def _cluster(self, epoch: int) -> None:
        plan = self._plan
        if plan.clustering is not None and plan.clustering.is_due(epoch):
            with self._costs.of("clustering"), self._random.unchanged():
                data = Evaluated(plan.split.train, plan.transform)
                self._strata = plan.clustering.strata(data, self._model.network, epoch)

    def _next_draw(self) -> Draw:
        """Return the draw of this step; who makes draws goes on for as long as they stay alike."""
        plan, kind = self._plan, (self._method.sampling, self._strata)
        if self._source is None or kind != self._kind:
            sampling, strata = self._kind = kind
            train, seed = plan.split.train, plan.seed
            samplers = make_samplers(sampling, train, plan.sizes, strata=strata, seed=seed)
            self._source = iterate(
                Draws(train, plan.transform, samplers, seed=seed),
                start=self._step,
                stop=plan.epochs * plan.setup.steps_per_epoch,
                num_workers=self._machine.num_workers,
                pins_memory=self._device.type == "cuda",
            )
        return next(self._source)

    def _save(self) -> None:
        """Write a checkpoint; at the end of an epoch it comes after the evaluation."""
        self._check_weights(self._model)
        weights = {f"model.{name}": value for name, value in self._model.state_dict().items()}
        weights |= {f"method.{name}": value for name, value in self._method.state_dict().items()}
        weights |= {f"initial.{name}": value for name, value in self._initial.items()}
        state = {
            **self._updates.state(),
            "phase": self._phase,
            "random": tuple(self._random.capture()),
            "strata": None if self._strata is None else (self._strata.cluster, self._strata.label),
            "epochs": [each.model_dump() for each in self._epochs],
            "position": self._log.position(),
            "fingerprint": self._plan.setup.fingerprint,
            "device": self._device.type,
            **self._costs.state(),
            **self._averaging.state(),
        }
        self._checkpoints.save(self._step, weights, state)

    def _restored(self) -> int:
        """Go back to the newest checkpoint, if there is one; return the length of its metrics."""
        saved = self._checkpoints.newest()
        if saved is None:
            return 0
        state, self._step = saved.state, saved.step
        check_resumable(state, self._plan.setup.fingerprint, self._device.type)
        try:
            self._model.load_state_dict(saved.under("model."))
            self._method.load_state_dict(saved.under("method."))
        except RuntimeError as error:
            raise DataError(
                f"the checkpoint in {self._folder.path} does not fit the network as it is built "
                f"now ({' '.join(str(error).split()):.100}); bring the old code back, or start anew"
            ) from error
        self._initial, self._phase = saved.under("initial."), state["phase"]
        self._updates = self._updates_of(self._phase)
        self._updates.restore(state)
        self._random.restore(RandomState(*state["random"]))
        self._strata = None if state["strata"] is None else Strata(*state["strata"])
        self._epochs = [Scored.model_validate(each) for each in state["epochs"]]
        self._costs.restore(state)
        self._averaging.restore(state)
        position: int = state["position"]
        return position


def _score(scored: Scored, plan: Plan) -> float:
    return pooled(scored.validation.of(plan.deploy)).percent
