"""What an ablation varies: options by the names that the paper's figures have for them."""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from cicf.results.entries import Entry

Over = Literal["batch-size", "clusters", "cut", "sampling", "order"]
OVERS: tuple[Over, ...] = get_args(Over)
Value = int | str
"""A number, or a word."""


@dataclass(frozen=True, slots=True)
class Axis:
    """Says which option an ablation goes through, and how its values are shown."""

    over: Over
    option: str
    title: str
    """What the values are, in words."""
    values: tuple[Value, ...] = ()
    """Those that are tried by default; none for those that the network has."""
    choices: tuple[Value, ...] = ()
    """All that there are; none where there is no end of them."""
    beside: tuple[str, ...] = ()
    """Options that differ between runs of one curve, because the value makes them void."""
    is_ordered: bool = True
    """Whether a line through the values means something."""

    def value(self, entry: Entry) -> Value | None:
        """Return the value that a run had; None where the option has no bearing on it."""
        setup = entry.setup
        if setup.inner_size is None:
            return None
        if self.over == "batch-size":
            return setup.inner_size
        if self.over == "cut":
            return setup.cut
        if self.over == "clusters" and entry.options.get("method.sampling") == "random":
            return None
        found = entry.options.get(self.option)
        return found if isinstance(found, int | str) else None

    def place(self, value: Value) -> tuple[int, int, str]:
        """Return what values are sorted by: as listed, numbers by size, cuts by depth, words."""
        if value in self.choices:
            return 0, self.choices.index(value), ""
        if isinstance(value, int):
            return 1, value, ""
        if self.over == "cut" and value == "input":
            return 2, 0, ""
        depth = re.fullmatch(r"Z_(\d+)", value)
        return (3, int(depth[1]), "") if depth else (4, 0, value)


AXES: dict[Over, Axis] = {
    axis.over: axis
    for axis in (
        Axis(
            "batch-size",
            "inner.size",
            "M, images of the inner batch",
            values=(64, 128, 256),
            beside=("inner.most",),
        ),
        Axis("clusters", "clusters.per_class", "K, clusters of each class", values=(1, 2, 3, 5)),
        Axis("cut", "model.cut", "Z, where the network is cut"),
        Axis(
            "sampling",
            "method.sampling",
            "where the inner batch comes from",
            values=("random", "class-weighted", "clusters"),
            choices=("random", "class-weighted", "clusters"),
            is_ordered=False,
        ),
        Axis(
            "order",
            "method.order",
            "order of the gradient; 2 is exact",
            values=(1, 2),
            choices=(1, 2),
            is_ordered=False,
        ),
    )
}
