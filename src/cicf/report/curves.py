"""How runs learned: losses and accuracies by epoch, as the runs logged them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from cicf.core import DataError
from cicf.results.folder import RunFolder, Values
from cicf.results.record import Parameters

PARAMETERS: tuple[Parameters, ...] = ("theta", "theta_dagger")
ByEpoch = dict[int, float]


class Curve(NamedTuple):
    """Is the mean over the runs of a row, and between which values they lie."""

    label: str
    parameters: Parameters
    epochs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    n: int
    """Runs."""


class Curves(NamedTuple):
    """Holds the curves of a table's rows, and a sentence for each run that left none."""

    loss: tuple[Curve, ...]
    """Mean of the logged steps of an epoch, at θ and at θ†."""
    accuracy: tuple[Curve, ...]
    """On source validation, all images together, in percent."""
    missing: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        """Return the rows that have a curve, in their order."""
        return tuple(dict.fromkeys(each.label for each in (*self.loss, *self.accuracy)))


def learning_curves(rows: Mapping[str, Sequence[Path]]) -> Curves:
    """Return the curves of rows, each given by the folders of its runs.

    A row is shown at the epochs that all of its runs have, so that no mean is over fewer of them.
    """
    loss: list[Curve] = []
    accuracy: list[Curve] = []
    missing: list[str] = []
    for label, paths in rows.items():
        logs, gaps = _logs(paths)
        missing += gaps
        for parameters in PARAMETERS:
            loss += _curve(label, parameters, logs, _losses)
            accuracy += _curve(label, parameters, logs, _accuracies)
    return Curves(tuple(loss), tuple(accuracy), tuple(missing))


def _logs(paths: Iterable[Path]) -> tuple[list[list[Values]], list[str]]:
    """Return the rows that runs logged, and why others have none."""
    found: list[list[Values]] = []
    missing: list[str] = []
    for path in paths:
        try:
            rows = _read(path)
        except DataError as error:
            missing.append(str(error))
            continue
        if rows:
            found.append(rows)
        else:
            missing.append(f"{path} has no metrics.jsonl, or nothing in it")
    return found, missing


def _read(path: Path) -> list[Values]:
    folder = RunFolder(path)
    try:
        rows = list(folder.metrics())
    except ValueError as error:
        raise DataError(f"{folder.metrics_file} is no JSON ({error}); bring it back") from error
    if not all(isinstance(row, dict) and isinstance(row.get("epoch"), int) for row in rows):
        raise DataError(f"{folder.metrics_file} has a row without an epoch; bring it back")
    return rows


def _curve(
    label: str,
    parameters: Parameters,
    logs: Sequence[Sequence[Values]],
    read: Callable[[Sequence[Values], Parameters], ByEpoch],
) -> list[Curve]:
    """Return one curve, or none where no run has numbers for it."""
    found = [values for rows in logs if (values := read(rows, parameters))]
    epochs = sorted(set.intersection(*map(set, found))) if found else []
    if not epochs:
        return []
    columns = [[values[epoch] for values in found] for epoch in epochs]
    curve = Curve(
        label=label,
        parameters=parameters,
        epochs=tuple(epochs),
        mean=tuple(map(fmean, columns)),
        low=tuple(map(min, columns)),
        high=tuple(map(max, columns)),
        n=len(found),
    )
    return [curve]


def _losses(rows: Sequence[Values], parameters: Parameters) -> ByEpoch:
    by_epoch: dict[int, list[float]] = {}
    for row in rows:
        if row.get("kind") == "step":
            value = row.get(_loss_name(row, parameters))
            # What is not finite was logged as null.
            if isinstance(value, int | float):
                by_epoch.setdefault(row["epoch"], []).append(float(value))
    return {epoch: fmean(values) for epoch, values in by_epoch.items()}


def _loss_name(row: Values, parameters: Parameters) -> str:
    """Return under which name the loss is logged; a method without θ† has one only, that of θ."""
    if "loss_at_theta" not in row:
        return "loss" if parameters == "theta" else ""
    return "loss_at_theta" if parameters == "theta" else "loss"


def _accuracies(rows: Sequence[Values], parameters: Parameters) -> ByEpoch:
    found: ByEpoch = {}
    for row in rows:
        if row.get("kind") == "epoch":
            scored = (row.get("validation") or {}).get(parameters) or {}
            if isinstance(scored.get("all"), int | float):
                found[row["epoch"]] = float(scored["all"])
    return found
