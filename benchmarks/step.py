"""Time of one step against the fastest of the peers, each contestant in a process of its own.

The processes take turns; a ratio is the median over rounds of two times of the same round. A time
counts only if the gradient passed in the same process. In the first column of ratios each
contestant has the allocator that it comes with, in the second all keep memory for reuse.
"""

import statistics
import sys
from dataclasses import asdict, dataclass
from itertools import product

import machine
from contest import (
    ALLOCATORS,
    CUTS,
    Place,
    fastest_peer,
    is_checked,
    parser,
    quartiles,
    race,
    ratios,
    sizes,
    taking_part,
    workers,
    write_json,
)
from networks import SETTINGS


@dataclass(frozen=True)
class Row:
    """Is what is known of a contestant after its turns; of three numbers, they are quartiles.

    `counts` says whether the gradient was right; `errors` are those of `gradients.Errors`.
    """

    is_fastest_peer: bool
    counts: bool
    ratio: list[float]
    seconds: list[float]
    faults: float
    errors: dict[str, float] | None


FOUND = "  {float64:.0e}, {float32:.2f} of unrolled's ({least_float32:.2g} to {most_float32:.2g})"
Tables = dict[str, dict[str, dict[str, Row]]]
"""Rows by contestant, by allocator, by setting and cut."""
WARM_UPS = 3
"""With memory that is kept, page faults end after the third step."""


def run(places: list[Place], allocator: str, *, rounds: int, seeds: int) -> dict[str, Row]:
    """Return what is known of each contestant after its turns."""
    with workers(places, allocator) as entered:
        errors = {
            name: worker.ask("check", seeds) for name, worker in entered.items() if is_checked(name)
        }
        seconds, faults = race(entered, warm_ups=WARM_UPS, rounds=rounds)
    peer = fastest_peer(seconds)
    found = ratios(seconds, peer)
    return {
        name: Row(
            is_fastest_peer=name == peer,
            counts=name not in errors or bool(errors[name]["are_small"]),
            ratio=found[name],
            seconds=quartiles(values),
            faults=statistics.median(faults[name]),
            errors=errors.get(name),
        )
        for name, values in seconds.items()
    }


def show(title: str, columns: dict[str, dict[str, Row]]) -> None:
    """Print the table of one setting and cut."""
    print(f"\n{title}")
    heads = "".join(f"{f'ratio, {name}':>14}{'seconds':>9}{'faults':>9}" for name in columns)
    print(f"  {'allocator':<18}{heads}  error in float64, float32")
    for name, row in next(iter(columns.values())).items():
        cells = "".join(_cells(rows[name]) for rows in columns.values())
        notes = "" if row.errors is None else FOUND
        print(f"  {name:<18}{cells}{notes.format(**row.errors or {})}")


def _cells(row: Row) -> str:
    shown = f"{row.ratio[1]:.3f}" if row.counts else "wrong"
    return f"{shown:>14}{row.seconds[1]:>9.3f}{row.faults:>9.0f}"


def as_json(tables: Tables) -> dict[str, object]:
    """Return the tables with rows as dictionaries."""
    return {
        title: {
            allocator: {name: asdict(row) for name, row in rows.items()}
            for allocator, rows in columns.items()
        }
        for title, columns in tables.items()
    }


def main() -> None:
    """Print a table for each setting and cut and, if asked, write all as JSON."""
    options = parser(__doc__)
    options.add_argument("--cuts", nargs="+", default=list(CUTS), choices=CUTS)
    options.add_argument("--allocators", nargs="+", default=list(ALLOCATORS), choices=ALLOCATORS)
    options.add_argument("--inner", type=int, help="M, instead of the setting's; M^l in proportion")
    options.add_argument("--rounds", type=int, help="default: 15, and 3 with --quick")
    options.add_argument(
        "--seeds", type=int, help="batches to check on: 10, or 3 of large networks with --quick"
    )
    chosen = options.parse_args()
    names = taking_part(chosen.contestants)
    rounds = chosen.rounds or (3 if chosen.quick else 15)
    tables: Tables = {}
    for setting, cut in product(chosen.settings, chosen.cuts):
        is_short = chosen.quick and (setting != "digits" or cut != chosen.cuts[0])
        if is_short and setting != "digits" and cut != chosen.cuts[0]:
            continue
        # On three batches a tie in the pooling of the small network can decide the median.
        seeds = chosen.seeds or (3 if chosen.quick and setting != "digits" else 10)
        inner, outer = sizes(setting, is_quick=chosen.quick, inner=chosen.inner)
        places = [Place(name, setting, cut, inner, outer) for name in names]
        title = f"{SETTINGS[setting].title}, M = {inner}, M^l = {outer}, cut {cut}"
        columns = {
            allocator: run(places, allocator, rounds=rounds, seeds=seeds)
            for allocator in (chosen.allocators[:1] if is_short else chosen.allocators)
        }
        show(title, columns)
        tables[title] = columns
    print(f"\n{rounds} rounds after {WARM_UPS} warm-ups; ratio: time over the fastest peer's")
    print(machine.summary())
    write_json(chosen.json, {"rounds": rounds, "tables": as_json(tables)})
    if not all(
        row.counts
        for columns in tables.values()
        for rows in columns.values()
        for row in rows.values()
    ):
        sys.exit("a gradient is wrong, so its times do not count")


if __name__ == "__main__":
    main()
