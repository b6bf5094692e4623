"""ERM, MAML and CICF on the embedded digits: train on three domains, test on the fourth.

Ends with a table, and a picture of where ERM and CICF look. A run that was interrupted goes on.
"""

import argparse
from pathlib import Path

from rich.console import Console
from rich.table import Table

import cicf
from cicf.data.demo import demo_digits
from cicf.report.explain import explained
from cicf.results.record import pooled
from cicf.training.costs import PHASES

METHODS = ("erm", "maml", "cicf")

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--target", default="blended", help="the domain to test on")
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--out", type=Path, default=Path("runs/demo"))
options = parser.parse_args()

console = Console(highlight=False)
table = Table(title=f"accuracy in %, {options.epochs} epochs, seed {options.seed}")
for column in ("method", "stored", "source validation", f"target {options.target}", "seconds"):
    table.add_column(column)
folders = {}
for method in METHODS:
    values = {
        "method": {"name": method},
        "data": {"target": options.target},
        "epochs": options.epochs,
        "seed": options.seed,
    }
    folders[method] = options.out / f"{method}-{options.target}-{options.epochs}-{options.seed}"
    console.print(f"training {method} in {folders[method]}", soft_wrap=True)
    record = cicf.train(cicf.recipe("demo", values), out=folders[method], resumes=True)
    assert record.last.test is not None
    stored = pooled(record.last.test.of(record.deploy))
    kept = {"theta": "θ", "theta_dagger": "θ†"}[record.deploy]
    seconds = f"{sum(record.seconds[phase] for phase in PHASES):.0f}"
    validation = f"{record.accuracy('validation'):.1f}"
    table.add_row(method, kept, validation, f"{stored.percent:.1f}", seconds)

images = demo_digits().of(options.target)
shown = [int((images.y == digit).nonzero()[0]) for digit in range(0, 10, 2)]
picture = options.out / "gradcam.png"
runs = {name.upper(): cicf.open_run(folders[name]) for name in ("erm", "cicf")}
pictures = [images[place][0] for place in shown]
titles = [f"a {images.classes[images.y[place]]}" for place in shown]
explained(runs, pictures, titles=titles, output=picture)
console.print(table)
console.print(f"where ERM and CICF look: {picture}", soft_wrap=True)
