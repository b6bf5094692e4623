"""Peak memory of a step above the model and its batches, each contestant in a process of its own.

Also: how the peak grows with M when memory is meant to be constant, and how far it lies above what
plain training needs for one chunk.
"""

import statistics

import machine
from contest import Place, Worker, parser, sizes, taking_part, write_json
from contestants import CONSTANT
from networks import SETTINGS
from peers import PEERS

MOST_GROWTH = 1.1
MOST_ACTIVATIONS, MOST_BUFFERS = 3, 4
"""What a step in constant memory may take: activations of one chunk, and copies of parameters."""
STEPS = 4
"""Those of a process; how memory grows with M is taken after more of the small ones."""
MIB = 2**20


def peak(place: Place, repeats: int = 1, steps: int = STEPS) -> float:
    """Return the peak of some steps in MiB, the median of several processes."""
    return statistics.median(_asked(place, steps)["bytes"] for _ in range(repeats)) / MIB


def table(places: list[Place], repeats: int) -> dict[str, float]:
    """Return the peak of each contestant in MiB; print it, and its ratio to the leanest peer."""
    known, first = SETTINGS[places[0].setting], places[0]
    print(f"\n{known.title}, M = {first.inner}, M^l = {first.outer}")
    print(f"  {'':<18}{'MiB':>8}{'leanest peer = 1':>18}")
    found = {place.name: peak(place, repeats) for place in places}
    peers = [value for name, value in found.items() if name in PEERS]
    for name, value in found.items():
        ratio = f"{value / min(peers):.3f}" if peers else ""
        print(f"  {name:<18}{value:>8.0f}{ratio:>18}")
    return found


def growth(setting: str, sweep: list[int], repeats: int) -> dict[str, float]:
    """Return the peak in constant memory in MiB for each M, and print how far they differ.

    As many images go through each process: the more blocks a heap has served the more it is cut up.
    """
    places = [Place(CONSTANT, setting, "input", m, SETTINGS[setting].outer) for m in sweep]
    steps = [max(1, STEPS * max(sweep) // m) for m in sweep]
    found = {
        str(place.inner): peak(place, repeats, count)
        for place, count in zip(places, steps, strict=True)
    }
    ratio = max(found.values()) / min(found.values())
    cells = ", ".join(f"{value:.0f} at M = {m}" for m, value in found.items())
    verdict = "flat" if ratio <= MOST_GROWTH else "NOT FLAT"
    print(f"  {CONSTANT} in MiB: {cells}; largest / smallest {ratio:.2f}: {verdict}")
    return found


def above_one_chunk(setting: str, constant: float) -> dict[str, float]:
    """Return the peak in constant memory against what plain training takes for one chunk."""
    chunk = SETTINGS[setting].chunk
    answer = _asked(Place("erm", setting, "input", chunk, chunk))
    parameters = answer["parameters"] / MIB
    # Plain training leaves a gradient, which is one more copy of the parameters.
    activations = answer["bytes"] / MIB - parameters
    bound = MOST_ACTIVATIONS * activations + MOST_BUFFERS * parameters
    verdict = "within" if constant <= bound else "ABOVE"
    print(
        f"  {CONSTANT}: {constant:.0f} MiB, {verdict} {bound:.0f} MiB = {MOST_ACTIVATIONS} times "
        f"plain training's activations of {chunk} images ({activations:.0f}) and {MOST_BUFFERS} "
        f"times the parameters ({parameters:.0f})"
    )
    return {"peak": constant, "activations": activations, "parameters": parameters, "bound": bound}


def _asked(place: Place, steps: int = STEPS) -> dict[str, float]:
    worker = Worker(place, {})
    try:
        return worker.ask("peak", steps)
    finally:
        worker.close()


def main() -> None:
    """Print the tables and, if asked, write them as JSON."""
    options = parser(__doc__)
    options.add_argument("--inner", type=int, help="M, instead of the setting's; M^l in proportion")
    options.add_argument("--sweep", type=int, nargs="+", default=[64, 256, 1024], help="sizes M")
    chosen = options.parse_args()
    names, repeats = taking_part(chosen.contestants), 1 if chosen.quick else 3
    content: dict[str, object] = {}
    for setting in chosen.settings:
        inner, outer = sizes(setting, is_quick=chosen.quick, inner=chosen.inner)
        places = [Place(name, setting, "input", inner, outer) for name in names]
        peaks = table(places, repeats)
        found: dict[str, object] = {"inner": inner, "outer": outer, "MiB": peaks}
        if CONSTANT in peaks:
            found["one chunk"] = above_one_chunk(setting, peaks[CONSTANT])
            if not chosen.quick or setting == "digits":
                found["growth"] = growth(setting, chosen.sweep, repeats)
        content[setting] = found
    print(f"\n{machine.summary()}")
    write_json(chosen.json, content)


if __name__ == "__main__":
    main()
