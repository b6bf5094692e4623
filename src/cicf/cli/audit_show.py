"""How the findings of an audit are printed."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cicf.cli.show import print_json, print_line, print_table

if TYPE_CHECKING:
    from cicf.report.audit_confounded import AuditedRun
    from cicf.report.audit_images import AuditedImages, Effect
    from cicf.report.estimates import Estimate

COLUMNS = {
    "accuracy": "observed: right",
    "stays": "do(conf.): stays",
    "kept_accuracy": "do(conf.): right",
    "changes": "do(cause): changes",
    "new_accuracy": "do(cause): right",
}
COMPARED = ("accuracy", "stays", "new_accuracy")
"""What runs are compared by."""
MOST_FLIPS = 10
"""Images that flip first, in the table; JSON has all of them."""


def show_confounded(
    runs: "Sequence[AuditedRun]", kind: str, files: Sequence[Path], *, as_json: bool
) -> None:
    """Print the measures of each run at every strength, and the differences to the first run."""
    first = runs[0]
    if as_json:
        names = (*COLUMNS, "misled")
        values = [
            {
                "run": run.name,
                "measures": {name: _by_strength(run.estimates(name)) for name in names},
                "minus_first": {name: _by_strength(run.differences(first, name)) for name in names},
            }
            for run in runs
        ]
        print_json(
            {
                "confounder": kind,
                "images": first.images,
                "runs": values,
                "files": [str(file) for file in files],
            }
        )
        return
    for run in runs:
        estimates = {name: run.estimates(name) for name in COLUMNS}
        rows = [
            (f"{at:g}", *(_percent(found[at]) for found in estimates.values())) for at in run.found
        ]
        print_table(
            f"{run.name}: % of images", ("relation", *COLUMNS.values()), rows, as_json=False
        )
        misled = _percent(run.estimates("misled")[0.0])
        print_line(f"{run.name}: the {kind} of another digit leads to that digit in {misled} %")
    for run in runs[1:]:
        differences = [run.differences(first, name) for name in COMPARED]
        rows = [(f"{at:g}", *(_percent(each[at], 1) for each in differences)) for at in run.found]
        columns = ("relation", *(COLUMNS[name] for name in COMPARED))
        print_table(f"{run.name} minus {first.name}, paired", columns, rows, as_json=False)
    print_line(
        f"relation of the {kind} to the label: 1 always its own, 0 at random, -1 always reversed; "
        f"{first.images} held-out digits; in brackets 95 % intervals over images, not seeds"
    )
    print_line(
        "a causal classifier stays in 100 % under do(confounder), is right in 100 % under "
        "do(cause), and is right as often at one relation as at another"
    )


def show_images(
    runs: "Sequence[AuditedImages]",
    names: Sequence[str],
    total: int,
    files: Sequence[Path],
    *,
    as_json: bool,
) -> None:
    """Print the effect of every intervention on each run, and the images that flip first."""
    if as_json:
        values = [_plain(run, names) for run in runs]
        print_json(
            {"images": len(names), "of": total, "runs": values, "files": [str(f) for f in files]}
        )
        return
    for run in runs:
        columns = ("intervention", "stays", "right", "right minus before", "probability")
        before = run.effects[0].accuracy
        title = f"{run.name}: % of images"
        title += "" if before is None else f"; right before {_percent(before)}"
        print_table(title, columns, [_row(each) for each in run.effects], as_json=False)
        _print_flips(run, names)
    for run in runs[1:]:
        _print_differences(run, runs[0])
    drawn = "" if total == len(names) else f", drawn of {total}"
    print_line(
        f"{len(names)} images{drawn}; probability: change of that of the class predicted before; "
        "in brackets 95 % intervals over images, not seeds"
    )


def _print_flips(run: "AuditedImages", names: Sequence[str]) -> None:
    if not run.flips:
        print_line(f"{run.name}: no intervention changes a prediction")
        return
    rows = [
        (
            names[flip.image],
            run.effects[flip.variant].variant.label,
            f"{run.classes[flip.before]} to {run.classes[flip.after]}",
            f"{100 * flip.drop:.0f}",
        )
        for flip in run.flips[:MOST_FLIPS]
    ]
    title = f"{run.name}: {len(run.flips)} of {len(names)} images flip; those that do first"
    columns = ("image", "at", "prediction", "probability lost in %")
    print_table(title, columns, rows, as_json=False)


def _print_differences(run: "AuditedImages", first: "AuditedImages") -> None:
    from cicf.report.audit import change

    rows = [
        (own.variant.label, _percent(change(their.is_kept.double(), own.is_kept.double()), 1))
        for own, their in zip(run.effects, first.effects, strict=True)
    ]
    title = f"{run.name} minus {first.name}, paired"
    print_table(title, ("intervention", "stays"), rows, as_json=False)


def _row(effect: "Effect") -> tuple[str, ...]:
    found = (effect.stays, effect.new_accuracy, effect.gain, effect.change)
    return effect.variant.label, *("" if each is None else _percent(each) for each in found)


def _percent(found: "Estimate", digits: int = 0) -> str:
    """Return a mean in percent with its interval in brackets."""
    # Zero is added because it takes the sign off a rounded zero.
    texts = [
        f"{round(100 * each, digits) + 0.0:.{digits}f}"
        for each in (found.value, found.low, found.high)
        if each is not None
    ]
    return texts[0] + (f" [{texts[1]},{texts[2]}]" if len(texts) == 3 else "")


def _by_strength(found: "dict[float, Estimate]") -> list[dict[str, object]]:
    return [{"relation": at, **estimate._asdict()} for at, estimate in found.items()]


def _plain(run: "AuditedImages", names: Sequence[str]) -> dict[str, object]:
    """Return what was found of a run as JSON writes it."""
    effects = [
        {
            "intervention": effect.variant.intervention.name,
            "strength": effect.variant.level,
            "meaning": effect.variant.intervention.meaning,
            **{
                name: None if found is None else found._asdict()
                for name, found in (
                    ("stays", effect.stays),
                    ("accuracy", effect.accuracy),
                    ("new_accuracy", effect.new_accuracy),
                    ("gain", effect.gain),
                    ("change", effect.change),
                )
            },
        }
        for effect in run.effects
    ]
    flips = [
        {
            "image": names[flip.image],
            "intervention": run.effects[flip.variant].variant.intervention.name,
            "strength": run.effects[flip.variant].variant.level,
            "before": run.classes[flip.before],
            "after": run.classes[flip.after],
            "drop": flip.drop,
            "probability": flip.sure,
            "new_probability": flip.new_sure,
        }
        for flip in run.flips
    ]
    return {"run": run.name, "effects": effects, "flips": flips}
