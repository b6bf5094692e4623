"""The turns of a step: own optimisers, own gradients, and a stop before what is not finite."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.support.methods import layout
from torch import Tensor, nn

from cicf.core import TrainingError
from cicf.core.draw import Draw, Samples
from cicf.data.sampling import Sampling
from cicf.method import Logged, Method, Turn
from cicf.training import OptimConfig
from cicf.training.updates import Updates

NUMBERS = torch.zeros(1, dtype=torch.int64)
DRAW = Draw(Samples(torch.zeros(1, 3, 16, 16), NUMBERS, NUMBERS, NUMBERS), None)
PLAIN = OptimConfig(lr=0.1, momentum=0.0, weight_decay=0.0, schedule="constant")
HEAVY = OptimConfig(lr=0.1, momentum=0.5, weight_decay=0.0, schedule="constant")


class Pulled(Method):
    """Has two numbers, `w` and `v`, and turns whose gradients the test chooses."""

    sampling = Sampling()

    def __init__(self, *turns: Turn) -> None:
        super().__init__(layout())
        self.w, self.v = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
        self.chosen: tuple[Turn, ...] = turns
        self.rates: list[float] = []
        self.num_steps = 0

    @property
    def turns(self) -> tuple[Turn, ...]:
        return self.chosen or super().turns

    def backward(self, draw: Draw) -> Logged:
        del draw
        self.rates.append(self.lr)
        (3 * self.w + 4 * self.v).sum().backward()
        return {"loss": 0.0}

    def after_step(self) -> None:
        self.num_steps += 1

    def pull(self, w: float = 0.0, v: float = 0.0, **terms: float) -> Callable[[Draw], Logged]:
        """Return a backward that adds w and v to the gradients of the two."""

        def backward(draw: Draw) -> Logged:
            del draw
            self.rates.append(self.lr)
            (w * self.w + v * self.v).sum().backward()
            return {"loss": 0.0, **terms}

        return backward


def take(updates: Updates, *, times: int = 1) -> dict[str, float]:
    for step in range(times):
        terms = updates.take(DRAW, step=step + 1, kept=lambda: "nothing was kept")
    return terms


def values(method: Pulled) -> tuple[float, float]:
    return method.w.item(), method.v.item()


def test_one_turn_moves_all_that_is_trained() -> None:
    method = Pulled()
    terms = take(Updates(method, PLAIN, epochs=1))
    assert values(method) == pytest.approx((-0.3, -0.4))
    assert terms["gradient_norm"] == pytest.approx(5.0)
    assert terms["lr"] == 0.1


def test_each_turn_has_a_momentum_of_its_own() -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=1.0)),
        Turn("second", (method.w,), method.pull(w=10.0)),
    )
    take(Updates(method, HEAVY, epochs=1), times=2)
    # By hand: the first has buffers 1 and 1.5, the second 10 and 15.
    assert method.w.item() == pytest.approx(-0.1 * (1 + 10 + 1.5 + 15))


def test_a_turn_moves_its_own_parameters_alone() -> None:
    method = Pulled()
    method.chosen = (Turn("first", (method.w,), method.pull(w=1.0, v=1.0)),)
    take(Updates(method, PLAIN, epochs=1))
    assert values(method) == pytest.approx((-0.1, 0.0))


def test_gradients_that_a_turn_leaves_on_others_are_thrown_away() -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=1.0, v=7.0)),
        Turn("second", (method.v,), method.pull(w=7.0, v=2.0)),
    )
    take(Updates(method, PLAIN, epochs=1), times=2)
    assert values(method) == pytest.approx((-0.2, -0.4))


def test_gradients_from_before_the_step_are_thrown_away() -> None:
    method = Pulled()
    method.w.grad, method.v.grad = torch.full((1,), 9.0), torch.full((1,), 9.0)
    take(Updates(method, PLAIN, epochs=1))
    assert values(method) == pytest.approx((-0.3, -0.4))


def test_gradients_of_parameters_that_were_not_trained_at_first_are_thrown_away() -> None:
    method = Pulled()
    method.v.requires_grad_(False)
    method.chosen = (Turn("first", (method.v,), method.pull(v=1.0)),)
    updates = Updates(method, PLAIN, epochs=1)
    method.v.requires_grad_(True)
    take(updates, times=3)
    assert method.v.item() == pytest.approx(-0.3)


def test_a_later_turn_sees_what_an_earlier_one_did() -> None:
    method = Pulled()

    def follow(draw: Draw) -> Logged:
        del draw
        (method.v * method.w.detach()).sum().backward()
        return {"loss": 0.0}

    method.chosen = (
        Turn("first", (method.w,), method.pull(w=-10.0)),
        Turn("second", (method.v,), follow),
    )
    take(Updates(method, PLAIN, epochs=1))
    assert values(method) == pytest.approx((1.0, -0.1))


def moving(method: Pulled) -> Turn:
    """Return a turn that moves w itself, and leaves a gradient on it."""

    def move(draw: Draw) -> Logged:
        terms = method.pull(w=5.0)(draw)
        with torch.no_grad():
            method.w -= 100 * method.lr
        return terms

    return Turn("itself", (method.w,), move, moves_itself=True)


def test_a_turn_that_moves_itself_gets_no_step_of_an_optimiser() -> None:
    method = Pulled()
    method.chosen = (moving(method),)
    take(Updates(method, HEAVY, epochs=1), times=2)
    assert method.w.item() == pytest.approx(-20.0)


def test_a_turn_that_moves_itself_knows_the_learning_rate_of_its_epoch() -> None:
    method = Pulled()
    method.chosen = (moving(method),)
    updates = Updates(method, PLAIN.model_copy(update={"schedule": "cosine"}), epochs=2)
    for _ in range(2):
        take(updates)
        updates.end_epoch()
    assert method.rates == pytest.approx([0.1, 0.05])


def test_a_turn_that_moves_itself_logs_no_norm_of_a_gradient() -> None:
    method = Pulled()
    method.chosen = (moving(method),)
    assert set(take(Updates(method, PLAIN, epochs=1))) == {"loss", "lr"}


def test_terms_and_norms_of_several_turns_are_told_apart() -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=3.0, loss=1.5)),
        Turn("second", (method.v,), method.pull(v=-4.0, loss=2.5, other=7.0)),
    )
    terms = take(Updates(method, PLAIN, epochs=1))
    norms = {"gradient_norm_first": 3.0, "gradient_norm_second": 4.0}
    assert terms == pytest.approx({"lr": 0.1, "loss": 2.5, "other": 7.0, **norms})


def test_a_turn_need_not_name_the_loss() -> None:
    method = Pulled()

    def silent(draw: Draw) -> Logged:
        method.pull(v=1.0)(draw)
        return {"critic": 2.0}

    method.chosen = (
        Turn("critic", (method.v,), silent),
        Turn("network", (method.w,), method.pull(w=1.0)),
    )
    assert take(Updates(method, PLAIN, epochs=1))["critic"] == 2.0


def test_each_turn_is_clipped_by_itself() -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=3.0)),
        Turn("second", (method.v,), method.pull(v=0.5)),
    )
    take(Updates(method, PLAIN.model_copy(update={"clip": 1.0}), epochs=1))
    assert values(method) == pytest.approx((-0.1, -0.05))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_stops_before_the_update(wrong: float) -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=1.0)),
        Turn("second", (method.v,), method.pull(v=wrong)),
    )
    sentence = rf"the gradient norm second is {wrong} in step 1, so training stopped before it"
    with pytest.raises(TrainingError, match=sentence):
        take(Updates(method, PLAIN, epochs=1))
    assert values(method) == pytest.approx((-0.1, 0.0))
    assert method.num_steps == 0


def test_a_gradient_of_the_first_turn_that_is_not_finite_stops_before_it() -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=math.nan)),
        Turn("second", (method.v,), method.pull(v=1.0)),
    )
    with pytest.raises(TrainingError, match="the gradient norm first is nan in step 1"):
        take(Updates(method, PLAIN, epochs=1))
    assert values(method) == (0.0, 0.0)


def test_a_loss_that_is_not_finite_stops_before_the_update() -> None:
    method = Pulled()
    method.chosen = (Turn("only", (method.w,), method.pull(w=1.0, loss=math.inf)),)
    with pytest.raises(TrainingError, match=r"the loss is inf in step 1, .* \(nothing was kept\)"):
        take(Updates(method, PLAIN, epochs=1))
    assert method.w.item() == 0.0


def test_the_method_acts_once_after_all_turns() -> None:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=1.0)),
        Turn("second", (method.v,), method.pull(v=1.0)),
    )
    take(Updates(method, PLAIN, epochs=1), times=3)
    assert method.num_steps == 3


def two_turns() -> Pulled:
    method = Pulled()
    method.chosen = (
        Turn("first", (method.w,), method.pull(w=1.0)),
        Turn("second", (method.w, method.v), method.pull(w=2.0, v=3.0)),
    )
    return method


def test_updates_go_on_from_their_state() -> None:
    optim = HEAVY.model_copy(update={"schedule": "cosine", "weight_decay": 0.1})
    whole, first, second = two_turns(), two_turns(), two_turns()
    straight, before = (Updates(each, optim, epochs=3) for each in (whole, first))
    for updates in (straight, before):
        take(updates, times=2)
        updates.end_epoch()
    second.load_state_dict(first.state_dict())
    after = Updates(second, optim, epochs=3)
    after.restore(before.state())
    for updates in (straight, after):
        take(updates, times=2)
        updates.end_epoch()
        take(updates)
    assert values(second) == values(whole)
    assert second.rates == whole.rates[4:]


def test_the_network_is_moved_with_what_the_method_owns() -> None:
    class Whole(Pulled):
        def backward(self, draw: Draw) -> Logged:
            loss: Tensor = self.model(draw.outer.x).sum() + 2 * self.w.sum()
            loss.backward()
            return {"loss": loss.detach()}

    method = Whole()
    before = method.model.network.head.bias.detach().clone()
    take(Updates(method, PLAIN, epochs=1))
    after = method.model.network.head.bias.detach()
    torch.testing.assert_close(after, before - 0.1)
    assert method.w.item() == pytest.approx(-0.2)
