"""Eq. 1 to 3 and 24 to 29 on a structural causal model whose true effects are known."""

import networkx as nx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from cicf import DataError
from cicf.maths.front_door import (
    back_door_adjustment,
    back_doors_are_blocked_by_x,
    effect_of_mediator,
    effect_on_mediator,
    front_door_adjustment,
    front_door_adjustment_of_samples,
    front_door_from_joint,
    has_no_back_door_to_mediator,
    intercepts_directed_paths,
    marginal_over_confounder,
    satisfies_front_door,
    through_mediator,
)

pytestmark = pytest.mark.usefixtures("float64")


class Scm:
    """C → X → Z → Y ← C with random tables: C is hidden, the mediator is random."""

    def __init__(self, seed: int, c: int = 3, x: int = 4, z: int = 3, y: int = 2) -> None:
        stream = torch.Generator().manual_seed(seed)

        def table(*shape: int) -> Tensor:
            noise = torch.rand(shape, generator=stream, dtype=torch.float64)
            return (3 * noise).softmax(dim=-1)

        self.p_c, self.p_x_given_c = table(c), table(c, x)
        self.p_z_given_x, self.p_y_given_zc = table(x, z), table(z, c, y)

    def observed(self) -> Tensor:
        """Return the joint P(C, X, Z, Y) by the graph's factors."""
        return torch.einsum(
            "c,cx,xz,zcy->cxzy", self.p_c, self.p_x_given_c, self.p_z_given_x, self.p_y_given_zc
        )

    def under_do_x(self) -> Tensor:
        """Return P(Y | do(X)) by mutilating the graph: the factor of X is struck out."""
        return torch.einsum("c,xz,zcy->xy", self.p_c, self.p_z_given_x, self.p_y_given_zc)

    def under_do_z(self) -> Tensor:
        """Return P(Y | do(Z)) likewise."""
        return torch.einsum("c,zcy->zy", self.p_c, self.p_y_given_zc)


def conditional(joint: Tensor, given_first: int) -> Tensor:
    dims = tuple(range(given_first, joint.ndim))
    return joint / joint.sum(dim=dims, keepdim=True)


seeds = given(seed=st.integers(0, 10**6))
quick = settings(max_examples=30, deadline=None)


@quick
@seeds
def test_front_door_adjustment_is_the_true_effect_without_seeing_the_confounder(seed: int) -> None:
    scm = Scm(seed)
    p_xzy = scm.observed().sum(dim=0)
    torch.testing.assert_close(front_door_from_joint(p_xzy), scm.under_do_x())


@quick
@seeds
def test_back_door_adjustment_is_the_true_effect(seed: int) -> None:
    scm = Scm(seed)
    p_y_given_xc = conditional(scm.observed().sum(dim=2).transpose(0, 1), 2)
    torch.testing.assert_close(back_door_adjustment(p_y_given_xc, scm.p_c), scm.under_do_x())


def test_conditioning_is_not_intervening() -> None:
    scm = Scm(0)
    p_y_given_x = conditional(scm.observed().sum(dim=(0, 2)), 1)
    assert (p_y_given_x - scm.under_do_x()).abs().max() > 0.01


@quick
@seeds
def test_marginal_over_the_confounder_is_confounded_or_causal_by_its_weights(seed: int) -> None:
    scm = Scm(seed)
    joint = scm.observed()
    p_y_given_xc = conditional(joint.sum(dim=2).transpose(0, 1), 2)
    p_c_given_x = conditional(joint.sum(dim=(2, 3)).T, 1)
    torch.testing.assert_close(
        marginal_over_confounder(p_y_given_xc, p_c_given_x), conditional(joint.sum(dim=(0, 2)), 1)
    )
    mutilated = scm.p_c.expand(len(p_c_given_x), -1)
    torch.testing.assert_close(marginal_over_confounder(p_y_given_xc, mutilated), scm.under_do_x())


@quick
@seeds
def test_each_link_of_the_front_door_is_the_true_effect(seed: int) -> None:
    scm = Scm(seed)
    joint = scm.observed()
    p_y_given_zx = conditional(joint.sum(dim=0).transpose(0, 1), 2)
    p_x = joint.sum(dim=(0, 2, 3))
    of_z = effect_of_mediator(p_y_given_zx, p_x)
    on_z = effect_on_mediator(joint.sum(dim=(0, 3)))
    torch.testing.assert_close(of_z, scm.under_do_z())
    torch.testing.assert_close(on_z, scm.p_z_given_x)
    torch.testing.assert_close(through_mediator(on_z, of_z), scm.under_do_x())


def test_adjustments_without_confounding_are_conditioning() -> None:
    scm = Scm(1)
    scm.p_x_given_c = scm.p_x_given_c[:1].expand_as(scm.p_x_given_c)
    joint = scm.observed()
    p_y_given_x = conditional(joint.sum(dim=(0, 2)), 1)
    torch.testing.assert_close(front_door_from_joint(joint.sum(dim=0)), p_y_given_x)


def test_deterministic_mediator_is_the_limit_of_eq_3() -> None:
    scm, h = Scm(2), torch.tensor([0, 2, 1, 0])
    joint = scm.observed()
    p_y_given_zx, p_x = conditional(joint.sum(dim=0).transpose(0, 1), 2), joint.sum(dim=(0, 2, 3))
    one_hot = torch.nn.functional.one_hot(h, 3).double()
    torch.testing.assert_close(
        front_door_adjustment_of_samples(h, p_y_given_zx, p_x),
        front_door_adjustment(one_hot, p_y_given_zx, p_x),
    )


def test_deterministic_mediator_leaves_the_tables_undefined() -> None:
    scm = Scm(3, x=3)
    scm.p_z_given_x = torch.eye(3)
    with pytest.raises(DataError, match=r"probability 0 at \(0, 1\).*P\(x, z\) > 0"):
        front_door_from_joint(scm.observed().sum(dim=0))


def test_counts_are_not_probabilities() -> None:
    with pytest.raises(DataError, match="sums to 24, not to 1"):
        front_door_from_joint(torch.ones(2, 3, 4))


CHAIN = [("C", "X"), ("C", "Y"), ("X", "Z"), ("Z", "Y")]


def test_the_papers_graph_satisfies_the_criterion() -> None:
    assert satisfies_front_door(nx.DiGraph(CHAIN), "X", "Z", "Y")


def test_direct_path_breaks_the_first_principle_alone() -> None:
    graph = nx.DiGraph([*CHAIN, ("X", "Y")])
    assert not intercepts_directed_paths(graph, "X", "Z", "Y")
    assert has_no_back_door_to_mediator(graph, "X", "Z")
    assert back_doors_are_blocked_by_x(graph, "X", "Z", "Y")
    assert not satisfies_front_door(graph, "X", "Z", "Y")


def test_common_cause_of_x_and_z_breaks_the_second_principle_alone() -> None:
    graph = nx.DiGraph([*CHAIN, ("U", "X"), ("U", "Z")])
    graph.remove_edge("C", "Y")
    assert intercepts_directed_paths(graph, "X", "Z", "Y")
    assert not has_no_back_door_to_mediator(graph, "X", "Z")
    assert back_doors_are_blocked_by_x(graph, "X", "Z", "Y")
    assert not satisfies_front_door(graph, "X", "Z", "Y")


def test_confounded_mediator_breaks_the_third_principle_alone() -> None:
    graph = nx.DiGraph([*CHAIN, ("U", "Z"), ("U", "Y")])
    assert intercepts_directed_paths(graph, "X", "Z", "Y")
    assert has_no_back_door_to_mediator(graph, "X", "Z")
    assert not back_doors_are_blocked_by_x(graph, "X", "Z", "Y")
    assert not satisfies_front_door(graph, "X", "Z", "Y")


def test_two_mediators_can_satisfy_it_together() -> None:
    graph = nx.DiGraph([("C", "X"), ("C", "Y"), ("X", "Z"), ("Z", "Y"), ("X", "W"), ("W", "Y")])
    assert not satisfies_front_door(graph, "X", "Z", "Y")
    assert satisfies_front_door(graph, "X", ["Z", "W"], "Y")


@pytest.mark.parametrize(
    ("edges", "z", "sentence"),
    [
        (CHAIN, "Q", "'Q' is not a node"),
        (CHAIN, ["X", "Z"], "must not contain x or y"),
        ([*CHAIN, ("Y", "X")], "Z", "has a cycle"),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    edges: list[tuple[str, str]], z: str | list[str], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        satisfies_front_door(nx.DiGraph(edges), "X", z, "Y")
