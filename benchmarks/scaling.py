"""How time and memory of a step grow with M, and the time of clustering with N; as a figure, too.

M^l stays as it is. The contestants take turns, each in a process of its own.
"""

import argparse
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import clustering
import machine
from contest import Place, Samples, race, taking_part, workers, write_json
from contestants import CONSTANT
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator
from memory import peak
from networks import SETTINGS

SIZES, NUMBERS = (64, 128, 256, 512, 1024), (1_000, 3_000, 10_000, 30_000, 100_000)
SETTING, NAMES = "digits", ("functional_call", "default", CONSTANT)
STYLES = {
    "functional_call": ("#0072B2", "o", "-"),
    "default": ("#D55E00", "s", "-"),
    CONSTANT: ("#009E73", "^", "--"),
    "restarts": ("#0072B2", "o", "-"),
    "ours": ("#D55E00", "s", "-"),
}
"""Colours that those see apart who do not see all colours, and a mark and a line for each."""
Curves = dict[str, dict[int, float]]


def times(names: Sequence[str], sizes: Sequence[int], rounds: int) -> Curves:
    """Return the median seconds of a step by contestant and M."""
    found: Curves = {name: {} for name in names}
    for m in sizes:
        places = [Place(name, SETTING, "input", m, SETTINGS[SETTING].outer) for name in names]
        with workers(places, "own") as entered:
            seconds: Samples = race(entered, warm_ups=2, rounds=rounds)[0]
        for name, values in seconds.items():
            found[name][m] = statistics.median(values)
    return found


def peaks(names: Sequence[str], sizes: Sequence[int], repeats: int) -> Curves:
    """Return the peak memory of a step in MiB by contestant and M."""
    outer = SETTINGS[SETTING].outer
    return {
        name: {m: peak(Place(name, SETTING, "input", m, outer), repeats) for m in sizes}
        for name in names
    }


def clusterings(numbers: Sequence[int], rounds: int) -> Curves:
    """Return the seconds of clustering by contestant and N."""
    rows = {n: clustering.compare(n, rounds) for n in numbers}
    return {name: {n: row[name] for n, row in rows.items()} for name in clustering.CONTESTANTS}


def show(title: str, curves: Curves) -> None:
    """Print one table, with the exponent of each row."""
    print(f"\n{title}")
    heads = "".join(f"{n:>9}" for n in next(iter(curves.values())))
    print(f"  {'':<18}{heads}{'exponent':>10}")
    for name, curve in curves.items():
        cells = "".join(f"{value:>9.2f}" for value in curve.values())
        power = clustering.exponent(curve) if len(curve) > 1 else math.nan
        print(f"  {name:<18}{cells}{power:>10.2f}")


def draw(panels: Mapping[str, tuple[Curves, str]], path: Path) -> None:
    """Write one panel for each quantity, both axes logarithmic."""
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    FigureCanvasSVG(figure)
    axes: Sequence[Axes] = figure.subplots(1, len(panels))
    for axis, (title, (curves, unit)) in zip(axes, panels.items(), strict=True):
        for name, curve in curves.items():
            colour, mark, line = STYLES[name]
            axis.plot(
                list(curve), list(curve.values()), line, marker=mark, color=colour, label=name
            )
        axis.set(title=title, xlabel=unit, xscale="log", yscale="log")
        axis.set_xticks(list(curve), [f"{n:,}" for n in curve], fontsize=7)
        axis.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        axis.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    """Print the tables and, if asked, write them as JSON and as a figure."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="fewer rounds and sizes")
    options.add_argument("--json", type=Path, help="write the numbers to this file")
    options.add_argument("--plot", type=Path, help="write the figure to this file, as SVG")
    options.add_argument("--sizes", type=int, nargs="+", help="sizes M")
    options.add_argument("--numbers", type=int, nargs="+", help="numbers of features N")
    options.add_argument("--contestants", nargs="+", choices=NAMES, default=NAMES)
    chosen = options.parse_args()
    names = taking_part(chosen.contestants)
    sizes = chosen.sizes or (SIZES[::2] if chosen.quick else SIZES)
    numbers = chosen.numbers or (NUMBERS[:3] if chosen.quick else NUMBERS)
    seconds = times(names, sizes, 1 if chosen.quick else 7)
    show("seconds of a step against M", seconds)
    memory = peaks(names, sizes, 1 if chosen.quick else 3)
    show("peak memory of a step in MiB against M", memory)
    clustered = clusterings(numbers, 1 if chosen.quick else 3)
    show("seconds of clustering against N", clustered)
    print(f"\n{SETTINGS[SETTING].title}; {machine.summary()}")
    write_json(chosen.json, {"seconds": seconds, "MiB": memory, "clustering": clustered})
    if chosen.plot:
        panels = {
            "seconds of a step": (seconds, "M"),
            "peak memory of a step in MiB": (memory, "M"),
            "seconds of clustering": (clustered, "N"),
        }
        draw(panels, chosen.plot)


if __name__ == "__main__":
    main()
