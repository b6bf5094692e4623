"""How compact the classes of runs are on sources and on the target, which are never mixed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cicf.data.domains import DomainDataset
from cicf.report.chosen import Role, domain_names
from cicf.report.compactness import Compactness, compactness, resampled
from cicf.report.tsne import labels_of

_NAMES: dict[Role, str] = {"source": "sources", "target": "target", "other": "all shown"}


class Compact(NamedTuple):
    """Holds the compactness of a run on some images, or by how much it exceeds another's."""

    run: str
    against: str | None
    on: str
    """Sources, target, or all images that are shown, where it is not known what they were."""
    domains: tuple[str, ...]
    images: int
    measures: Compactness


def compact(
    features: Mapping[str, Float[np.ndarray, "n _"]],
    data: DomainDataset,
    indices: Sequence[int],
    roles: Mapping[str, Role],
    *,
    seed: int = 0,
) -> tuple[list[Compact], list[Compact]]:
    """Return what each run's features come to, and how they differ from the first run's.

    The features are those of the images at these places; `roles` are given by domain.
    """
    y, domains = labels_of(data, indices), domain_names(data, indices)
    first = next(iter(features))
    scores, differences = [], []
    for role in dict.fromkeys(roles.values()):
        named = tuple(name for name in roles if roles[name] == role)
        here = np.flatnonzero([name in named for name in domains])
        what = _NAMES[role], named, len(here)
        found = {name: resampled(each[here], y[here], seed=seed) for name, each in features.items()}
        scores += [Compact(name, None, *what, compactness(each)) for name, each in found.items()]
        differences += [
            Compact(name, first, *what, compactness(each, than=found[first]))
            for name, each in found.items()
            if name != first
        ]
    return scores, differences


def heads_of(scores: Sequence[Compact]) -> dict[str, str]:
    """Return what stands above the panel of each run: its name, and its silhouettes."""
    heads: dict[str, str] = {}
    for each in scores:
        line = f"silhouette on {each.on}: {each.measures.silhouette.value:z.3f}"
        heads[each.run] = f"{heads.get(each.run, each.run)}\n{line}"
    return heads
