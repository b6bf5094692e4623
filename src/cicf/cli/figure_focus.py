"""What `cicf figure gradcam` prints: where runs look, in numbers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cicf.cli.figures import command_line, print_files
from cicf.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from cicf.experiment import LoadedRun
    from cicf.report.estimates import Estimate
    from cicf.report.looking import Focused, Scene

NO_MASKS = "no numbers: which pixels are the object is not known for these images"
MEANING = (
    "energy inside: share of a map inside the object; peak inside: share of maps that peak there; "
    "zero maps have neither, and are left out; chance: the object's share of the image; [95 % over "
    "images, for these very networks]"
)


def print_focus(
    files: Sequence[Path],
    runs: "Mapping[str, LoadedRun]",
    scene: "Scene",
    found: "Focused",
    *,
    class_: str,
    layer: str | None,
    as_json: bool,
) -> None:
    """Print what was written, for which class and layer, and what the looks come to."""
    layers = _layers(runs, scene, layer)
    if as_json:
        print_json(_as_json(files, scene, found, class_, layers))
        return
    if found.focus:
        _print_tables(scene, found)
        print_line(MEANING)
    else:
        print_line(NO_MASKS)
    where = ", ".join(f"{name} at {each}" for name, each in layers.items())
    shown = class_ if class_ in ("true", "predicted") else repr(class_)
    print_line(f"maps are for the {shown} class; {where}")
    print_files(files)


def shares(estimate: "Estimate", *, sign: str = "") -> str:
    """Return an estimate in percent, with its interval."""
    if estimate.value is None:
        return "–"
    value = f"{100 * estimate.value:{sign}.1f}"
    if estimate.low is None or estimate.high is None:
        return value
    return f"{value} [{100 * estimate.low:{sign}.1f}, {100 * estimate.high:{sign}.1f}]"


def _print_tables(scene: "Scene", found: "Focused") -> None:
    head = ("domain", "run", "images", "zero maps", "chance", "energy inside", "peak inside")
    rows = [
        (
            scene.titled(each.domain),
            each.run,
            str(each.images),
            str(each.zero_maps),
            f"{100 * each.area:.1f}",
            shares(each.energy),
            shares(each.pointing),
        )
        for each in found.focus
    ]
    print_table("where runs look, in %", head, rows, as_json=False)
    differences = [
        (
            scene.titled(each.domain),
            f"{each.run} − {each.against}",
            shares(each.energy, sign="+"),
            shares(each.pointing, sign="+"),
        )
        for each in found.differences
    ]
    if differences:
        print_table(
            "differences on the same images, in points",
            ("domain", "runs", "energy inside", "peak inside"),
            differences,
            as_json=False,
        )


def _layers(runs: "Mapping[str, LoadedRun]", scene: "Scene", layer: str | None) -> dict[str, str]:
    import torch

    from cicf.report.gradcam import cam_layer

    if layer is not None:
        return dict.fromkeys(runs, layer)
    place = torch.tensor(scene.drawn[:1])
    return {
        name: cam_layer(
            run.model.network, run.transform.evaluation(scene.data, place).to(run.device)
        )
        for name, run in runs.items()
    }


def _as_json(
    files: Sequence[Path],
    scene: "Scene",
    found: "Focused",
    class_: str,
    layers: Mapping[str, str],
) -> dict[str, object]:
    return {
        "files": [str(file) for file in files],
        "command": command_line(),
        "class": class_,
        "layers": layers,
        "note": None if found.focus else NO_MASKS,
        "focus": [
            {
                **each._asdict(),
                "role": scene.roles.get(each.domain, "other"),
                "energy": each.energy._asdict(),
                "pointing": each.pointing._asdict(),
            }
            for each in found.focus
        ],
        "differences": [
            {
                **each._asdict(),
                "energy": each.energy._asdict(),
                "pointing": each.pointing._asdict(),
            }
            for each in found.differences
        ],
    }
