"""The updates of a step: one optimiser and one schedule for each turn of the method."""

from collections.abc import Callable
from typing import Any

from torch.nn.utils import clip_grad_norm_

from cicf.core.draw import Draw
from cicf.method import Method, Turn
from cicf.training.checks import check_terms
from cicf.training.optim import OptimConfig

State = list[dict[str, Any]]  # Any: what optimisers and schedules keep is theirs


class Updates:
    """Takes the turns of a method, as it has them now, for a number of epochs."""

    def __init__(self, method: Method, optim: OptimConfig, *, epochs: int) -> None:
        self._method, self._turns, self._clip = method, method.turns, optim.clip
        self._trained = method.trained
        self._optimizers = [optim.optimizer(turn.parameters) for turn in self._turns]
        self._schedulers = [optim.scheduler(each, epochs) for each in self._optimizers]

    def take(self, draw: Draw, *, step: int, kept: Callable[[], str]) -> dict[str, float]:
        """Take a step, or stop before an update whose gradient is not finite; return its terms."""
        terms: dict[str, float] = {}
        for turn, optimizer in zip(self._turns, self._optimizers, strict=True):
            self._forget_gradients(turn)
            terms["lr"] = self._method.lr = optimizer.param_groups[0]["lr"]
            terms |= {name: float(value) for name, value in turn.backward(draw).items()}
            if turn.moves_itself:
                # Without gradients nothing moves, but the schedule wants to see a step.
                self._forget_gradients(turn)
            else:
                name = "gradient_norm" + (f"_{turn.name}" if len(self._turns) > 1 else "")
                terms[name] = float(clip_grad_norm_(turn.parameters, self._clip))
            check_terms(terms, step=step, kept=kept)
            optimizer.step()
        self._method.after_step()
        return terms

    def end_epoch(self) -> None:
        """Let the schedules move on."""
        for scheduler in self._schedulers:
            scheduler.step()

    def state(self) -> dict[str, State]:
        """Return all that is needed to go on."""
        return {
            "optimizer": [each.state_dict() for each in self._optimizers],
            "scheduler": [each.state_dict() for each in self._schedulers],
        }

    def restore(self, state: dict[str, State]) -> None:
        """Go on from what `state` returned."""
        for optimizer, saved in zip(self._optimizers, state["optimizer"], strict=True):
            optimizer.load_state_dict(saved)
        for scheduler, saved in zip(self._schedulers, state["scheduler"], strict=True):
            scheduler.load_state_dict(saved)

    def _forget_gradients(self, turn: Turn) -> None:
        for parameter in (*self._trained, *turn.parameters):
            parameter.grad = None
