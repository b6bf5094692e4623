"""Back-door and front-door adjustment on conditional tables: Eq. 1 to 3 and 24 to 29.

A table's dimensions are named in its signature, conditions before outcomes: P(Y | X, C) is
[x, c, y]. The criterion itself, a property of the graph and not of a table, stands at the end.
"""

from collections.abc import Collection

import networkx as nx
import torch
from jaxtyping import Float, Int
from torch import Tensor

from cicf.core import DataError


def back_door_adjustment(
    p_y_given_xc: Float[Tensor, "x c y"], p_c: Float[Tensor, " c"]
) -> Float[Tensor, "x y"]:
    """Return P(Y | do(X)) = Σ_c P(Y | X, c) P(c) (Eq. 1 and 25)."""
    return torch.einsum("xcy,c->xy", p_y_given_xc, p_c)


def marginal_over_confounder(
    p_y_given_xc: Float[Tensor, "x c y"], p_c_given_x: Float[Tensor, "x c"]
) -> Float[Tensor, "x y"]:
    """Return Σ_c P(Y | X, c) P(c | X), the second line of Eq. 24.

    With P_m(c | X) = P(c) of the mutilated graph it is P(Y | do(X)); with the P(c | X) that was
    observed it is P(Y | X), the confounded answer.
    """
    return torch.einsum("xcy,xc->xy", p_y_given_xc, p_c_given_x)


def front_door_adjustment(
    p_z_given_x: Float[Tensor, "x z"],
    p_y_given_zx: Float[Tensor, "z x y"],
    p_x: Float[Tensor, " x"],
) -> Float[Tensor, "x y"]:
    """Return P(Y | do(X)) = Σ_z P(z | X) Σ_x̃ P(Y | z, x̃) P(x̃) (Eq. 2 and 29)."""
    return through_mediator(p_z_given_x, effect_of_mediator(p_y_given_zx, p_x))


def front_door_adjustment_of_samples(
    h: Int[Tensor, " x"], p_y_given_zx: Float[Tensor, "z x y"], p_x: Float[Tensor, " x"]
) -> Float[Tensor, "x y"]:
    """Return P(Y | do(X)) = Σ_x̃ P(Y | h(x), x̃) P(x̃) for a deterministic mediator (Eq. 3).

    No data can supply P(Y | z, x̃) where h(x̃) ≠ z: Eq. 3 takes it as given, and Eq. 4 models it.
    """
    return effect_of_mediator(p_y_given_zx, p_x)[h]


def through_mediator(
    p_z_do_x: Float[Tensor, "x z"], p_y_do_z: Float[Tensor, "z y"]
) -> Float[Tensor, "x y"]:
    """Return P(Y | do(X)) = Σ_z P(z | do(X)) P(Y | do(z)) (Eq. 26)."""
    return p_z_do_x @ p_y_do_z


def effect_on_mediator(p_xz: Float[Tensor, "x z"]) -> Float[Tensor, "x z"]:
    """Return P(Z | do(X)) = P(Z | X) from P(X, Z), which have no common cause (Eq. 27)."""
    return _conditional(p_xz, given=1)


def effect_of_mediator(
    p_y_given_zx: Float[Tensor, "z x y"], p_x: Float[Tensor, " x"]
) -> Float[Tensor, "z y"]:
    """Return P(Y | do(Z)) = Σ_x̃ P(Y | Z, x̃) P(x̃), X blocking the back door (Eq. 28)."""
    return torch.einsum("zxy,x->zy", p_y_given_zx, p_x)


def front_door_from_joint(p_xzy: Float[Tensor, "x z y"]) -> Float[Tensor, "x y"]:
    """Return P(Y | do(X)) by Eq. 27 to 29 from what was observed alone, the joint P(X, Z, Y).

    P(x, z) must be positive everywhere, which no deterministic mediator satisfies.
    """
    total = float(p_xzy.sum())
    if abs(total - 1) > 1e-4:
        raise DataError(
            f"the joint table sums to {total:g}, not to 1; divide counts by their total"
        )
    return front_door_adjustment(
        effect_on_mediator(p_xzy.sum(dim=2)),
        _conditional(p_xzy, given=2).transpose(0, 1),
        p_xzy.sum(dim=(1, 2)),
    )


def _conditional(joint: Float[Tensor, "..."], given: int) -> Float[Tensor, "..."]:
    """Return the joint conditioned on its first `given` dimensions."""
    outcomes = tuple(range(given, joint.ndim))
    marginal = joint.sum(dim=outcomes, keepdim=True)
    if not bool((marginal > 0).all()):
        cell = tuple((marginal <= 0).squeeze(outcomes).nonzero()[0].tolist())
        raise DataError(
            f"the joint table has probability 0 at {cell}, so what is conditional on it is "
            "undefined; the front-door adjustment needs P(x, z) > 0 everywhere: merge values"
        )
    return joint / marginal


def satisfies_front_door(
    graph: "nx.DiGraph[str]", x: str, z: str | Collection[str], y: str
) -> bool:
    """Tell whether z meets the three principles of the front-door criterion for x and y."""
    return (
        intercepts_directed_paths(graph, x, z, y)
        and has_no_back_door_to_mediator(graph, x, z)
        and back_doors_are_blocked_by_x(graph, x, z, y)
    )


def intercepts_directed_paths(
    graph: "nx.DiGraph[str]", x: str, z: str | Collection[str], y: str
) -> bool:
    """Tell whether every directed path from x to y goes through z (principle 1)."""
    mediators = _nodes(graph, z, x, y)
    rest = graph.subgraph(set(graph) - mediators)
    return not nx.has_path(rest, x, y)


def has_no_back_door_to_mediator(
    graph: "nx.DiGraph[str]", x: str, z: str | Collection[str]
) -> bool:
    """Tell whether no unblocked back-door path leads from x to z (principle 2)."""
    mediators = _nodes(graph, z, x)
    return _separated_without_effects_of({x}, graph, mediators, given=set())


def back_doors_are_blocked_by_x(
    graph: "nx.DiGraph[str]", x: str, z: str | Collection[str], y: str
) -> bool:
    """Tell whether x blocks every back-door path from z to y (principle 3)."""
    mediators = _nodes(graph, z, x, y)
    return _separated_without_effects_of(mediators, graph, {y}, given={x})


def _separated_without_effects_of(
    causes: set[str], graph: "nx.DiGraph[str]", outcomes: set[str], *, given: set[str]
) -> bool:
    """Tell whether only back-door paths are left and all of them are blocked (d-separation)."""
    back_doors = graph.copy()
    back_doors.remove_edges_from(list(graph.out_edges(causes)))
    return bool(nx.is_d_separator(back_doors, causes, outcomes, given))


def _nodes(graph: "nx.DiGraph[str]", z: str | Collection[str], *others: str) -> set[str]:
    """Return z as a set, or say what is wrong with the question."""
    mediators = {z} if isinstance(z, str) else set(z)
    for node in (*others, *sorted(mediators)):
        if node not in graph:
            raise DataError(f"{node!r} is not a node of the graph, whose nodes are {sorted(graph)}")
    if mediators & set(others):
        raise DataError(f"z = {sorted(mediators)} must not contain x or y; name other nodes as z")
    if not nx.is_directed_acyclic_graph(graph):
        raise DataError(
            "the graph has a cycle; a causal graph must be acyclic: remove an edge of it"
        )
    return mediators
