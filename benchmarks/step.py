"""Time of one step against unrolled autograd, interleaved in one run; medians of ratios.

A time counts only if the gradient passed in the same run.
"""

import argparse
import json
import platform
import statistics
import time

import torch
from contestants import CONTESTANTS, EXACT, batch, digits_cnn, gradient


def worst_error(sizes: tuple[int, int]) -> float:
    """Return the largest relative error of the exact contestants in float64."""
    model = digits_cnn().double()
    inner, outer = ((x.double(), y) for x, y in (batch(m, i) for i, m in enumerate(sizes)))
    reference = gradient(CONTESTANTS["unrolled"], model, inner, outer)
    errors = [
        (gradient(CONTESTANTS[name], model, inner, outer) - reference).norm() for name in EXACT
    ]
    return float(max(errors) / reference.norm())


def ratios(sizes: tuple[int, int], rounds: int) -> dict[str, float]:
    """Return the median over the rounds of each contestant's time over unrolled's in that round."""
    model = digits_cnn()
    inner, outer = (batch(m, i) for i, m in enumerate(sizes))
    seen: dict[str, list[float]] = {name: [] for name in CONTESTANTS}
    for turn in range(rounds + 1):
        times = {}
        for name, contestant in CONTESTANTS.items():
            start = time.perf_counter()
            gradient(contestant, model, inner, outer)
            times[name] = time.perf_counter() - start
        if turn > 0:
            for name, seconds in times.items():
                seen[name].append(seconds / times["unrolled"])
    return {name: statistics.median(values) for name, values in seen.items()}


def main() -> None:
    """Print the table and, if asked, write it as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="5 rounds instead of 25")
    parser.add_argument("--inner", type=int, default=256, help="M; M^l is a third of it")
    parser.add_argument("--json", help="write the table to this file")
    options = parser.parse_args()
    sizes, rounds = (options.inner, options.inner * 84 // 256), 5 if options.quick else 25
    error = worst_error((min(64, options.inner), 21))
    assert error < 1e-10, f"the gradient is off by {error}, so no time counts"
    table = ratios(sizes, rounds)
    print(f"time of a step, unrolled = 1; Digits CNN, M = {sizes[0]}, M^l = {sizes[1]}")
    for name, ratio in table.items():
        print(f"  {name:<26} {ratio:.2f}")
    print(f"  gradient in float64: within {error:.0e} of unrolled; {rounds} rounds")
    if options.json:
        machine = {
            "machine": platform.platform(),
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
        with open(options.json, "w") as file:
            json.dump(
                {**machine, "sizes": sizes, "rounds": rounds, "ratios": table}, file, indent=1
            )


if __name__ == "__main__":
    main()
