"""`cicf figure gradcam`: where runs look, as pictures, and as numbers where masks are known."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cicf.cli.figure_focus import print_focus
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
from cicf.cli.figures import Output, command_line
from cicf.cli.inspect import Checkpoint, Device, Json
from cicf.core.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from cicf.experiment import LoadedRun
    from cicf.report.looking import Scene

FAST_DRAWN, FAST_MEASURED = 2, 40


def gradcam(
    runs: Runs,
    output: Output,
    data: Data = None,
    root: Root = None,
    domains: Annotated[
        str | None,
        typer.Option(help="Domains to show, separated by commas; by default what is tested on."),
    ] = None,
    per_domain: Annotated[int, typer.Option(help="Images to draw of each domain.")] = 6,
    measured: Annotated[
        int | None,
        typer.Option(help="Images to measure of each domain, where masks are known; all if unset."),
    ] = None,
    images: Annotated[
        list[Path] | None,
        typer.Option(help="An image file to show instead; may be given often. No numbers."),
    ] = None,
    class_: Annotated[
        str | None,
        typer.Option(
            "--class", help="What maps are for: the true class, the predicted one, or a name."
        ),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="The module to look at; by default the last feature map.")
    ] = None,
    labels: Labels = None,
    seed: Seed = 0,
    checkpoint: Checkpoint = "last",
    device: Device = "auto",
    fast: Annotated[
        bool, typer.Option("--fast", help="Draw 2 and measure 40 images of each domain.")
    ] = False,
    json: Json = False,
) -> None:
    """Show where runs look in the same images (Grad-CAM), and measure it where masks are known.

    The numbers: the share of a map's energy inside the object's mask, and how often its peak lies
    there, for each domain, with intervals over images, beside the share that chance would give.
    """
    from cicf.report.cam_figure import save_cams
    from cicf.report.figures import check_output
    from cicf.report.focus import glances
    from cicf.report.looking import focused

    check_output(output)
    opened = open_runs(runs, labels, checkpoint=checkpoint, device=device)
    _check_class(class_, opened)
    if fast:
        per_domain, measured = min(per_domain, FAST_DRAWN), FAST_MEASURED
    if images:
        _refuse_both(data, domains)
        scene = _of_files(opened, images)
    else:
        scene = _of_data(opened, data, root, domains, (per_domain, measured, seed))
    shown = class_ or ("true" if scene.has_classes else "predicted")
    seen = {
        name: list(
            counted(
                glances(run, scene.data, scene.seen, class_=shown, layer=layer),
                total=len(scene.seen),
                what=f"Grad-CAM of {name}",
            )
        )
        for name, run in opened.items()
    }
    found = focused(scene, seen)
    files = save_cams(
        output, opened, scene, found, class_=shown, layer=layer, command=command_line()
    )
    print_focus(files, opened, scene, found, class_=shown, layer=layer, as_json=json)


def _check_class(class_: str | None, runs: "Mapping[str, LoadedRun]") -> None:
    known = ("true", "predicted", *next(iter(runs.values())).setup.classes)
    if class_ is not None and class_ not in known:
        raise ConfigError(
            f"--class {class_!r} is none that the networks know; {did_you_mean(class_, known)}"
        )


def _refuse_both(data: str | None, domains: str | None) -> None:
    if data is not None or domains is not None:
        option = "--data" if data is not None else "--domains"
        raise ConfigError(f"--images and {option} exclude each other; leave one of them out")


def _of_files(runs: "Mapping[str, LoadedRun]", images: Sequence[Path]) -> "Scene":
    from cicf.report.chosen import check_agreement, files_as_data
    from cicf.report.looking import Scene

    check_agreement(runs, must_share_data=False)
    found = files_as_data(images, next(iter(runs.values())).setup.classes)
    places = list(range(len(images)))
    return Scene(found, places, places, {})


def _of_data(
    runs: "Mapping[str, LoadedRun]",
    data: str | None,
    root: Path | None,
    domains: str | None,
    numbers: tuple[int, int | None, int],
) -> "Scene":
    """Return the images: so many to draw, so many to measure, or all, chosen by a seed."""
    from cicf.report.chosen import chosen_images, role_of, tested
    from cicf.report.looking import Scene

    (per_domain, measured, seed), first = numbers, next(iter(runs.values()))
    found, is_own = load_shown(runs, data, root)
    own = tested(first) if is_own else ()
    names = (own or found.domains) if domains is None else named_domains(domains, found)
    drawn = seen = chosen_images(found, names, per_domain=per_domain, seed=seed)
    if found.masks is not None:
        most = len(found) if measured is None else max(measured, per_domain)
        seen = chosen_images(found, names, per_domain=most, seed=seed)
    return Scene(found, drawn, seen, {name: role_of(first, name) for name in names if is_own})
