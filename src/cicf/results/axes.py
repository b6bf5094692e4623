"""What an ablation varies: options by the names that the paper's figures have for them."""

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from cicf.results.entries import Entry

Over = Literal[
    "batch-size",
    "clusters",
    "cut",
    "sampling",
    "order",
    "alpha",
    "alpha-schedule",
    "bound",
    "curvature",
]
OVERS: tuple[Over, ...] = get_args(Over)
Value = int | float | str
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
    is_number: bool = False
    """Whether values are numbers with a fraction, or `inf`."""
    usual: Value | None = None
    """What runs had from before there was the option."""

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
        found = entry.options.get(self.option, self.usual)
        # An infinite number is written as a word in JSON.
        if self.is_number and isinstance(found, int | float | str):
            return float(found)
        return found if isinstance(found, int | str) else None

    def place(self, value: Value) -> tuple[int, int | float, str]:
        """Return what values are sorted by: as listed, numbers by size, cuts by depth, words."""
        if value in self.choices:
            return 0, self.choices.index(value), ""
        if isinstance(value, int | float):
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
        Axis(
            "alpha",
            "method.alpha",
            "α, the length of the virtual step before its bound",
            values=(0.02, 0.05, 0.1, 0.2, 0.5),
            is_number=True,
        ),
        Axis(
            "alpha-schedule",
            "method.alpha_schedule",
            "how α changes from epoch to epoch",
            values=("constant", "cosine"),
            choices=("constant", "cosine"),
            is_ordered=False,
            usual="constant",
        ),
        Axis(
            "bound",
            "method.max_step_ratio",
            "the bound on ‖α g†‖ / ‖θ‖",
            values=(0.005, 0.01, 0.02, math.inf),
            is_number=True,
        ),
        Axis(
            "curvature",
            "method.curvature",
            "the part of the inner batch that the second derivative is taken of",
            values=(0.25, 0.5, 1.0),
            is_number=True,
        ),
    )
}
