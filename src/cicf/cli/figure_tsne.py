"""`cicf figure tsne`: the features of runs in the plane, and how compact their classes are."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicf.cli.figure_runs import (
    Data,
    Labels,
    Root,
    Runs,
    Seed,
    counted,
    load_shown,
    named_domains,
    open_runs,
)
from cicf.cli.figures import Output, command_line, print_files
from cicf.cli.inspect import Checkpoint, Device, Json
from cicf.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from cicf.report.estimates import Estimate
    from cicf.report.grouped import Compact

FAST = 20
MEANING = (
    "measured on the features, not in the plane: silhouette by class, from −1 to 1, higher is more "
    "compact; scatter within classes over that between them, lower is more compact; [95 % over "
    "images, for these very networks]"
)


def tsne(
    runs: Runs,
    output: Output,
    data: Data = None,
    root: Root = None,
    domains: Annotated[
        str | None, typer.Option(help="Domains to show, separated by commas; by default all.")
    ] = None,
    images: Annotated[int, typer.Option(help="Images of each domain.")] = 150,
    labels: Labels = None,
    seed: Seed = 0,
    checkpoint: Checkpoint = "last",
    device: Device = "auto",
    fast: Annotated[bool, typer.Option("--fast", help="Take 20 images of each domain.")] = False,
    json: Json = False,
) -> None:
    """Show what runs make of the same images before they decide, side by side (t-SNE).

    Features are what enters the last linear layer. How compact classes are is measured on them,
    for sources and target apart, with intervals over images.
    """
    from cicf.report.chosen import chosen_images, role_of
    from cicf.report.figures import check_output
    from cicf.report.grouped import compact, heads_of
    from cicf.report.tsne import embedding_of, features_of
    from cicf.report.tsne_figure import save_tsne

    check_output(output)
    opened = open_runs(runs, labels, checkpoint=checkpoint, device=device)
    found, is_own = load_shown(opened, data, root)
    names = found.domains if domains is None else named_domains(domains, found)
    images = min(images, FAST) if fast else images
    places = chosen_images(found, names, per_domain=images, seed=seed)
    first = next(iter(opened.values()))
    roles = {name: role_of(first, name) if is_own else "other" for name in names}
    features, embeddings = {}, {}
    batches = ([name] for name in opened)
    for name in counted(batches, total=len(opened), what="t-SNE", unit="runs"):
        features[name] = features_of(opened[name], found, places)
        embeddings[name] = embedding_of(features[name], found, places, seed=seed)
    scores, differences = compact(features, found, places, roles, seed=seed)
    titles = {n: n if roles[n] == "other" else f"{n} ({roles[n]})" for n in names}
    files = save_tsne(
        output, embeddings, titles=titles, heads=heads_of(scores), command=command_line()
    )
    if json:
        print_json(_as_json(files, scores, differences))
        return
    _print_tables(scores, differences)
    print_files(files)


def _print_tables(scores: "Sequence[Compact]", differences: "Sequence[Compact]") -> None:
    head = ("images", "run", "number", "silhouette", "within / between")
    rows = [
        (f"{each.on}: {', '.join(each.domains)}", each.run, str(each.images), *_texts(each))
        for each in scores
    ]
    print_table("how compact classes are", head, rows, as_json=False)
    if differences:
        rows = [
            (each.on, f"{each.run} − {each.against}", str(each.images), *_texts(each, sign="+"))
            for each in differences
        ]
        print_table("differences on the same images", head, rows, as_json=False)
    print_line(MEANING)


def _texts(each: "Compact", *, sign: str = "") -> tuple[str, str]:
    silhouette, ratio = each.measures
    return _text(silhouette, f"{sign}.4f"), _text(ratio, f"{sign}.2f")


def _text(estimate: "Estimate", form: str) -> str:
    value, low, high = (format(each, form) for each in estimate)
    return f"{value} [{low}, {high}]"


def _as_json(
    files: "Sequence[Path]", scores: "Sequence[Compact]", differences: "Sequence[Compact]"
) -> dict[str, object]:
    return {
        "files": [str(file) for file in files],
        "command": command_line(),
        "compactness": [_entry(each) for each in scores],
        "differences": [_entry(each) for each in differences],
    }


def _entry(each: "Compact") -> dict[str, object]:
    entry = {name: value for name, value in each._asdict().items() if name != "measures"}
    return {**entry, **{name: e._asdict() for name, e in each.measures._asdict().items()}}
