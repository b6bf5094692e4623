"""What the measurements of clustering-then-sampling allow to say, in sentences and tables."""

from collections.abc import Sequence

from cicf.report.estimates import Estimate
from cicf.report.sampling import Answer
from cicf.report.sampling_errors import Cell, Verdict, verdict
from cicf.report.sampling_gap import Sampler
from cicf.results.table import Interval

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The heads of columns, and rows."""
AGAINST: tuple[Sampler, ...] = ("random", "class-weighted")
VERDICTS: dict[Verdict, str] = {"below": "below", "above": "above", "not told apart": "open"}
AGREES = 3.0
"""Standard errors within which an observed error is taken for the predicted one."""


def gap_table(answer: Answer) -> Table:
    """Return E and E / M, with what groups of these sizes have by chance."""
    head = ("K (K†)", "M", "against", "E", "E / M in %", "E by chance")
    rows = [
        (
            f"{each.k} ({each.clusters})",
            str(each.m),
            each.against,
            f"{each.mean:.1f} ± {each.error:.1f}",
            f"{100 * each.mean / each.m:.1f}",
            f"{each.by_chance:.1f}",
        )
        for each in answer.gaps
    ]
    return head, rows


def error_table(answer: Answer) -> Table:
    """Return the errors by the equations, as predicted with whole N_k, and as observed."""
    head = ("K (K†)", "M", "batches", "Eq. 15, 19", "predicted", "observed")
    rows = [
        (
            f"{cell.k} ({cell.clusters})",
            str(cell.m),
            kind,
            f"{series.equation:.4g}",
            f"{series.predicted:.4g}",
            f"{series.observed:.4g} ± {series.error:.2g}",
        )
        for cell in answer.cells
        for kind, series in cell.series.items()
    ]
    return head, rows


def difference_table(answer: Answer) -> Table:
    """Return by how much the mean square of clustering differs from that of other batches."""
    head = ("K (K†)", "M", "against random", "against class-weighted")
    rows = [
        (
            f"{cell.k} ({cell.clusters})",
            str(cell.m),
            *(
                f"{_percent(cell.against[kind])} {VERDICTS[verdict(cell, kind)]}"
                for kind in AGAINST
            ),
        )
        for cell in answer.cells
    ]
    return head, rows


def cosine_table(answer: Answer) -> Table:
    """Return the mean cosines, and by how much those within clusters exceed the others."""
    found = answer.cosines
    rows = [
        ("two images of a cluster", _cosine(found.within), ""),
        (
            "of two clusters of a class",
            _cosine(found.same_class),
            _cosine(found.beyond_same_class),
        ),
        ("of any two clusters", _cosine(found.elsewhere), _cosine(found.beyond_elsewhere)),
    ]
    return ("pairs of images", "mean cosine", "within clusters it is higher by"), rows


def sentences(answer: Answer) -> list[str]:
    """Return what can be said; that something is better, only where its interval says so."""
    said = [_gap_sentence(answer)]
    said += [_error_sentence(answer.head, kind) for kind in AGAINST]
    said += [_agreement_sentence(answer), *_cosine_sentences(answer)]
    if answer.cosines.left_out:
        said.append(
            f"{answer.cosines.left_out} of {answer.images} images have no gradient at all, and are "
            "left out of the cosines."
        )
    return said


def plain_values(answer: Answer) -> dict[str, object]:
    """Return everything as numbers and texts by name, as JSON has them."""
    return {
        "sources": answer.sources,
        "images": answer.images,
        "parameters": answer.parameters,
        "gradient_norm": answer.gradient_norm,
        "k": answer.k,
        "m": answer.m,
        "gaps": [{**each._asdict(), "ratio": each.mean / each.m} for each in answer.gaps],
        "errors": [
            {
                "k": cell.k,
                "clusters": cell.clusters,
                "m": cell.m,
                "batches": [each._asdict() for each in cell.series.values()],
                "clustered_against": {
                    kind: {**each.model_dump(), "verdict": verdict(cell, kind)}
                    for kind, each in cell.against.items()
                },
            }
            for cell in answer.cells
        ],
        "cosines": {
            name: each._asdict() if isinstance(each, Estimate) else each
            for name, each in answer.cosines._asdict().items()
        },
        "said": sentences(answer),
    }


def _gap_sentence(answer: Answer) -> str:
    """Return E at K and the largest M."""
    m = max(each.m for each in answer.gaps)
    found = [each for each in answer.gaps if (each.k, each.m) == (answer.k, m)]
    measured = " and ".join(
        f"{each.mean:.1f} ± {each.error:.1f} ({100 * each.mean / m:.1f} %) against {each.against}"
        for each in found
    )
    chance = " and ".join(f"{each.by_chance:.1f}" for each in found)
    return (
        f"At K = {answer.k}, M = {m} the gap E is {measured} batches; groups of these sizes have "
        f"{chance} whatever is in them, so E tells how batches are drawn, not what clusters are "
        "worth."
    )


def _error_sentence(cell: Cell, kind: Sampler) -> str:
    difference = cell.against[kind]
    where = f"at K = {cell.k}, M = {cell.m}: mean square {_percent(difference)} %"
    said = {
        "below": f"The observed error of clustering-then-sampling lies under that of {kind} "
        f"batches {where}.",
        "above": f"The observed error of clustering-then-sampling lies ABOVE that of {kind} "
        f"batches {where}.",
        "not told apart": f"The observed errors of clustering-then-sampling and of {kind} batches "
        f"cannot be told apart {where}.",
    }
    return said[verdict(cell, kind)]


def _agreement_sentence(answer: Answer) -> str:
    series = [each for cell in answer.cells for each in cell.series.values()]
    # A batch of all images has no error, which rounding makes a tiny one.
    near = 1e-6 * answer.gradient_norm
    count = sum(
        abs(each.observed - each.predicted) <= AGREES * each.error + near for each in series
    )
    return (
        f"Observed and predicted errors agree within {AGREES:g} standard errors in {count} of "
        f"{len(series)} cases."
    )


def _cosine_sentences(answer: Answer) -> list[str]:
    found = answer.cosines
    if found.within.value is None:
        return ["No cluster has two images with a gradient, so that there are no cosines."]
    said = [f"Gradients of two images of a cluster have a mean cosine of {_cosine(found.within)}."]
    if found.same_class.value is None:
        said.append("No class has two clusters, between which cosines could be compared.")
    for beyond, other, others in (
        (found.beyond_same_class, found.same_class, "clusters of the same class"),
        (found.beyond_elsewhere, found.elsewhere, "any two clusters"),
    ):
        if other.value is None:
            continue
        which = f"than between {others} ({other.value:.3f}): by {_cosine(beyond)}"
        if beyond.is_above_zero:
            said.append(f"They point more the same way within clusters {which}.")
        elif beyond.is_below_zero:
            said.append(f"They point LESS the same way within clusters {which}.")
        else:
            said.append(
                f"That they point more the same way within clusters {which}, cannot be said: the "
                "interval contains 0."
            )
    return said


def _percent(difference: Interval) -> str:
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.1f}"
    return f"{difference.mean:+.1f} ({difference.low:+.1f} to {difference.high:+.1f})"


def _cosine(found: Estimate) -> str:
    if found.value is None:
        return "–"
    return f"{found.value:.3f} ({found.low:.3f} to {found.high:.3f})"
