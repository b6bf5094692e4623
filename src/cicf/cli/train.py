"""`cicf train`."""

from pathlib import Path
from typing import Annotated

import typer

from cicf.cli.options import Average, Base, config_of
from cicf.cli.show import print_record, watched


def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA",
            help="What to learn from: [bold]demo[/] or [bold]confounded[/] (embedded digits), a "
            "folder with class/*.jpg or domain/class/*.jpg, a manifest (.csv, .jsonl), or a "
            "benchmark such as pacs.",
        ),
    ],
    target: Annotated[
        str | None, typer.Option(help="The domain to hold out and test on at the end.")
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="The only domain to train on; tests on all others.")
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="By default cicf; [bold]cicf methods[/] lists them all.")
    ] = None,
    base: Base = None,
    average: Average = None,
    model: Annotated[
        str | None,
        typer.Option(help="digits_cnn, resnet18, any classifier of torchvision, or pkg.mod:build."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="What to start from: imagenet, none, or a file.")
    ] = None,
    augment: Annotated[
        str | None, typer.Option(help="basic (flip, translation), autoaugment or none.")
    ] = None,
    preset: Annotated[
        str, typer.Option(help="recommended, paper, paper-literal or cpu; see cicf preset.")
    ] = "recommended",
    epochs: Annotated[int | None, typer.Option(help="Passes through the training images.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="A number that everything random follows from.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The folder in which DATA lies.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder for this run; by default runs/<run id>.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Any option by name, such as method.alpha=0.1; may be given often."
        ),
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A TOML file with options, named as for --set.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on where this run stopped, or start it.")
    ] = False,
    keep_epochs: Annotated[
        bool,
        typer.Option("--keep-epochs", help="Keep and test the networks of all epochs."),
    ] = False,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read.")
    ] = False,
    device: Annotated[
        str | None, typer.Option(help="auto, cpu, cuda or mps; auto takes a GPU if there is one.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train a classifier and test it on a domain that it has not seen.

    Progress shows the loss at θ and at θ†, where the virtual step leads.
    The model is stored in the run's folder, for predict, explain and export.
    """
    named = {
        "data.target": target,
        "data.source": source,
        "data.augment": augment,
        "keeps_epochs": keep_epochs or None,
        "data.root": root,
        "data.skips_unreadable": skip_unreadable or None,
        "method.name": method,
        "method.base.name": base,
        "average.name": average,
        "model.name": model,
        "model.weights": weights,
        "machine.device": device,
        "epochs": epochs,
        "seed": seed,
    }
    chosen = config_of(data, named=named, settings=set_ or [], file=config, preset=preset)
    from cicf.experiment import events

    folder, record = watched(events(chosen, out=out, resumes=resume))
    print_record(record, folder, as_json=json)
