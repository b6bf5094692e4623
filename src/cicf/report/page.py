"""One page about runs that stands by itself: tables, plots, curves, networks, provenance."""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from cicf.report.compare import compared
from cicf.report.curves import Curve, Curves, learning_curves
from cicf.report.figures import COLOURS
from cicf.report.grid import Grid, grids
from cicf.report.page_ablation import PageAblation, page_ablations
from cicf.report.page_cost import Costs, cost_grid, costs
from cicf.report.page_plots import Plot, accuracy_plots, difference_plots
from cicf.report.page_runs import (
    RowOptions,
    RunFacts,
    differing,
    row_options,
    run_facts,
    run_grid,
)
from cicf.report.page_views import Case, Views
from cicf.results.record import Protocol
from cicf.results.runs import FoundRun
from cicf.results.table import Table
from cicf.results.tabulate import make_tables

DARK_COLOURS = (
    *("#58b1ea", "#ff8f4d", "#2fc59b", "#e3a3c6", "#9ad7fb", "#f6c453", "#f2f2f2", "#a8a8a8"),
)
"""The colours of the figures, as light as it takes to be seen on a dark page."""
BASELINE = "erm"
"""The method that others are compared with, where nobody says which."""


class Section(NamedTuple):
    """Holds what the page says of one table: some data, a protocol, a network."""

    table: Table
    runs: dict[str, tuple[FoundRun, ...]]
    """By the label of their row."""
    results: Grid
    differences: Grid | None
    accuracy: tuple[Plot, ...]
    against: tuple[Plot, ...]
    ablations: tuple[PageAblation, ...]
    curves: Curves
    costs: Costs
    seconds: Grid
    overview: Grid
    differing: Grid | None
    options: tuple[RowOptions, ...]
    facts: tuple[RunFacts, ...]

    @property
    def protocol(self) -> Protocol:
        """Return the protocol of its first run."""
        return next(iter(self.runs.values()))[0].record.setup.protocol


class Sections(NamedTuple):
    """Holds a section for each table, and a sentence for each run that is in none."""

    sections: tuple[Section, ...]
    skipped: tuple[str, ...]


def make_sections(runs: Sequence[FoundRun], *, against: str | None = None) -> Sections:
    """Return what a page says of runs; they are compared with a row, or with ERM where it runs."""
    made = make_tables(runs)
    tables = tuple(map(_with_baseline, made.tables))
    if against is not None:
        tables = compared(made.tables, against)
    by_path = {run.path: run for run in runs}
    return Sections(tuple(_section(table, by_path) for table in tables), made.skipped)


def render_page(
    sections: Sequence[Section],
    views: Sequence[Views],
    *,
    title: str,
    command: str,
    version: str,
    skipped: Sequence[str] = (),
) -> str:
    """Return the page as HTML that needs nothing from anywhere, views in the order of sections.

    Names from the data stay text wherever they stand; scripts and styles that are not the page's
    own are refused by its policy.
    """
    style, script = _colours() + _asset("report.css"), _scripts()
    return (
        _environment()
        .get_template("report.html")
        .render(
            sections=list(zip(sections, views, strict=True)),
            title=title,
            command=command,
            version=version,
            skipped=skipped,
            # Our own files, which escaping would spoil.
            style=Markup(style),
            script=Markup(script),
            policy=_policy(style, script),
        )
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("cicf.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(curves=_drawn, points=_placed, breakable=_breakable)
    return environment


def _with_baseline(table: Table) -> Table:
    """Return the table compared with ERM, where it is clear which row that is."""
    rows = [row for row in table.rows if row.method == BASELINE]
    is_clear = len({row.augment for row in rows}) == len(rows) > 0
    return compared([table], BASELINE)[0] if is_clear and len(table.rows) > 1 else table


def _section(table: Table, by_path: Mapping[Path, FoundRun]) -> Section:
    runs = {row.label: tuple(by_path[path] for path in row.runs) for row in table.rows}
    results, *differences = grids(table)
    spent = costs(runs)
    options = row_options(runs)
    return Section(
        table=table,
        runs=runs,
        results=results,
        differences=differences[0] if differences else None,
        accuracy=accuracy_plots(table),
        against=difference_plots(table),
        ablations=page_ablations([run for each in runs.values() for run in each]),
        curves=learning_curves({row.label: row.runs for row in table.rows}),
        costs=spent,
        seconds=cost_grid(spent),
        overview=run_grid(runs),
        differing=differing(options),
        options=options,
        facts=tuple(run_facts(label, run) for label, each in runs.items() for run in each),
    )


def _drawn(section: Section) -> dict[str, object]:
    """Return the curves as the script draws them."""
    labels = [row.label for row in section.table.rows]

    def series(curves: Sequence[Curve]) -> list[dict[str, object]]:
        return [{**each._asdict(), "series": labels.index(each.label)} for each in curves]

    return {
        "labels": [[name, labels.index(name)] for name in section.curves.labels],
        "panels": [
            {"title": "Loss", "unit": "", "curves": series(section.curves.loss)},
            {
                "title": "Accuracy on source validation",
                "unit": " %",
                "curves": series(section.curves.accuracy),
            },
        ],
    }


def _placed(case: Case) -> dict[str, object]:
    """Return points as the script draws them."""
    found = case.clouds
    assert found is not None
    shown = found._asdict() | {"clouds": [each._asdict() for each in found.clouds]}
    del shown["compact"]
    return {**shown, "tested": case.tested}


def _breakable(label: str) -> Markup:
    """Return a label that may go on in the next line after the signs of an option."""
    return Markup(re.sub(r"([=.,+])(?=\w)", r"\1<wbr>", str(escape(label))))


def _asset(name: str) -> str:
    return (files("cicf.report") / "templates" / name).read_text(encoding="utf-8")


def _scripts() -> str:
    names = ("report.js", "curves.js", "gallery.js", "points.js")
    return "\n".join(map(_asset, names))


def _colours() -> str:
    """Return the colours of series as variables, for light and for dark."""

    def variables(colours: Sequence[str]) -> str:
        return "".join(f"--series-{place}:{each};" for place, each in enumerate(colours))

    light, dark = variables(COLOURS), variables(DARK_COLOURS)
    return (
        f":root{{{light}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}}}}}\n"
        "@media screen and (prefers-color-scheme:dark)"
        f"{{:root:not([data-theme=light]){{{dark}}}}}\n"
    )


def _policy(style: str, script: str) -> str:
    """Return a policy that lets this very style and script through, pictures inside, no more."""

    def source(text: str) -> str:
        digest = hashlib.sha256(text.encode()).digest()
        return f"'sha256-{base64.b64encode(digest).decode()}'"

    return (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
