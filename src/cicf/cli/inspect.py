"""`cicf eval`, `predict`, `explain` and `export`: what can be done with a trained network."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from cicf.cli.show import NAMES, print_json, print_line, print_scores, print_table
from cicf.core.errors import ConfigError, did_you_mean

Run = Annotated[
    Path,
    typer.Argument(metavar="RUN", help="The folder of a run, such as runs/demo-blended-cicf-…"),
]
Images = Annotated[list[Path], typer.Argument(metavar="IMAGE", help="Images, of any size.")]
Checkpoint = Annotated[
    Literal["last", "best"],
    typer.Option(help="The network after the last epoch, or of the best source validation."),
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def evaluate(
    run: Run,
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="demo, confounded, or a folder of images, as for training."
        ),
    ],
    root: Annotated[Path | None, typer.Option(help="The folder in which DATA lies.")] = None,
    skip_unreadable: Annotated[
        bool, typer.Option("--skip-unreadable", help="Leave out images that cannot be read.")
    ] = False,
    checkpoint: Checkpoint = "last",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Score a trained network on images with labels, domain by domain."""
    from cicf.config import DataConfig
    from cicf.data.fingerprint import fingerprint
    from cicf.experiment import open_run
    from cicf.experiment.data import load_data

    loaded = open_run(run, at=checkpoint, device=device)
    chosen = DataConfig(name=data, root=root, skips_unreadable=skip_unreadable)
    found = load_data(chosen, is_for_training=False).data
    print_scores(f"{run} on {data}", loaded.scores(found), as_json=json)
    if not json:
        network = f"{checkpoint} epoch, {NAMES[loaded.config.method.deploy]}"
        trained = f"trained by {loaded.setup.protocol.kind}; data {loaded.setup.fingerprint}"
        scored = fingerprint(found)
        print_line(f"network: {network}, {trained}; scored on data {scored}")
        if scored == loaded.setup.fingerprint:
            known = ", ".join(loaded.setup.sources)
            print_line(f"note: it was trained on most images of {known}; accuracy there is no test")


def predict(
    run: Run,
    images: Images,
    checkpoint: Checkpoint = "last",
    device: Device = "auto",
    json: Json = False,
) -> None:
    """Tell the class of images, and how sure the network is."""
    from cicf.experiment import open_run, read_images

    loaded = open_run(run, at=checkpoint, device=device)
    confidence, found = loaded.probabilities(read_images(images)).max(dim=1)
    names = [loaded.setup.classes[each] for each in found.tolist()]
    triples = list(zip(map(str, images), names, confidence.tolist(), strict=True))
    if json:
        print_json([{"image": i, "class": c, "confidence": p} for i, c, p in triples])
        return
    rows = [(image, name, f"{100 * sure:.1f} %") for image, name, sure in triples]
    print_table(str(run), ("image", "class", "confidence"), rows, as_json=False)


def explain(
    run: Run,
    images: Images,
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture to write.")],
    class_: Annotated[
        str | None, typer.Option("--class", help="The class to explain; by default the predicted.")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="The module to look at; by default the last feature map.")
    ] = None,
    checkpoint: Checkpoint = "last",
    device: Device = "auto",
) -> None:
    """Show where in the images the network looks (Grad-CAM), as a picture."""
    from cicf.experiment import open_run, read_images
    from cicf.report.explain import explained

    loaded = open_run(run, at=checkpoint, device=device)
    if class_ is not None and class_ not in loaded.setup.classes:
        hint = did_you_mean(class_, loaded.setup.classes)
        raise ConfigError(f"--class {class_!r} is none that the network knows; {hint}")
    if output.resolve() in [image.resolve() for image in images]:
        raise ConfigError(f"-o {output} is one of the images to explain; name another file")
    titles = [image.name for image in images]
    explained(
        {"what it looks at": loaded},
        read_images(images),
        titles=titles,
        output=output,
        class_=class_,
        layer=layer,
    )
    print_line(f"wrote {output}")


def export(
    run: Run,
    output: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file to write: model.pt2 or model.onnx.")
    ],
    checkpoint: Checkpoint = "last",
) -> None:
    """Write the network as one file for other programs, and check that it agrees.

    It takes RGB images in [0, 1] of the size it was trained with, and returns probabilities.
    """
    from cicf.experiment import open_run
    from cicf.models.export import export_model

    loaded = open_run(run, at=checkpoint, device="cpu")
    setup = loaded.setup
    difference = export_model(
        loaded.model.network,
        output,
        image_size=setup.image_size,
        mean=setup.mean,
        std=setup.std,
        classes=setup.classes,
    )
    print_line(
        f"wrote {output}; images [n, 3, {setup.image_size}, {setup.image_size}] in [0, 1] to "
        f"probabilities of {len(setup.classes)} classes; differs by at most {difference:.1e}"
    )
