"""Peak memory of one step above the model and its batches, each in a process of its own."""

import argparse
import resource
import subprocess
import sys

from contestants import CONTESTANTS, batch, digits_cnn, gradient

NAMES = ("erm", "unrolled", "whole", "chunks with graphs", "chunks, constant memory", "order 1")


def peak_mebibytes(name: str, m: int) -> float:
    """Return how far a step raises the peak of this process; a small step comes first."""
    model = digits_cnn()
    gradient(CONTESTANTS[name], model, batch(8, 0), batch(8, 1))
    inner, outer = batch(m, 0), batch(84, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    gradient(CONTESTANTS[name], model, inner, outer)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    """Print a table with a row per contestant and a column per M."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the largest M")
    parser.add_argument("--inner", type=int, nargs="+", default=[64, 256, 1024], help="sizes M")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "M"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(peak_mebibytes(options.one[0], int(options.one[1])))
        return
    sizes = options.inner[:-1] if options.quick else options.inner
    print("peak memory of a step in MiB; Digits CNN, M^l = 84")
    print(f"  {'M':<26}" + "".join(f"{m:>8}" for m in sizes))
    for name in NAMES:
        cells = [
            subprocess.run(
                [sys.executable, __file__, "--one", name, str(m)],
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for m in sizes
        ]
        print(f"  {name:<26}" + "".join(f"{float(cell):>8.0f}" for cell in cells))


if __name__ == "__main__":
    main()
