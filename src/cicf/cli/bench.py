"""`cicf bench`: a table of the paper in one command."""

import os
from typing import Annotated, Literal

import typer

from cicf.cli.grids import (
    ConfigFile,
    Data,
    DryRun,
    Out,
    Preset,
    Root,
    Settings,
    Targets,
    executed,
    given,
    print_failures,
    runs_folder,
)
from cicf.cli.options import Average, Base, overrides, words
from cicf.cli.show import error_console, print_line

METHODS = "erm,maml,cicf"
SEEDS = 6
"""As in the paper."""
SMALL = "cpu"
"""The preset for a look: one seed, and runs that are too small to share among cores."""


def bench(
    data: Data,
    root: Root = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods, separated by commas, or all; by default erm,maml,cicf."),
    ] = None,
    base: Base = None,
    average: Average = None,
    augment: Annotated[
        str | None,
        typer.Option(help="basic, autoaugment, none, separated by commas; by default basic."),
    ] = None,
    targets: Targets = "all",
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Runs of each, with seeds 0, 1, …; by default 6, 1 with cpu."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Runs at the same time; by default 1, with cpu one a core."),
    ] = None,
    preset: Preset = "recommended",
    protocol: Annotated[
        Literal["leave-one-domain-out", "single-source"],
        typer.Option(help="Hold each domain out, or train on each alone."),
    ] = "leave-one-domain-out",
    keep_epochs: Annotated[
        bool,
        typer.Option("--keep-epochs", help="Keep the networks of all epochs, for an oracle."),
    ] = False,
    out: Out = None,
    set_: Settings = None,
    config: ConfigFile = None,
    dry_run: DryRun = False,
) -> None:
    """Run every method on every domain and seed, and print the table.

    What has ended is not run again, what was cut off goes on. Started twice, the work is shared.
    """
    from cicf.bench import Grid, make_jobs
    from cicf.data.fingerprint import fingerprint
    from cicf.experiment import recipe
    from cicf.experiment.data import load_data

    named = {
        "data.root": root,
        "keeps_epochs": keep_epochs or None,
        "method.base.name": base,
        "average.name": average,
    }
    over = overrides(named=named, settings=set_ or [], file=config)
    grid = Grid(
        data=data,
        methods=_methods(methods or given(over, "method", "name") or METHODS),
        augments=words(augment or given(over, "data", "augment") or "basic", "--augment"),
        domains=() if targets == "all" else words(targets, "--targets"),
        seeds=seeds or (1 if preset == SMALL else SEEDS),
        protocol=protocol,
        preset=preset,
    )
    # Options of methods are for those that have them, so only the rest can be looked at by itself.
    shared = {section: values for section, values in over.items() if section != "method"}
    chosen = recipe(data, shared, preset=preset)
    loaded = load_data(chosen.data, cache_root=chosen.machine.cache_root())
    where = runs_folder(data, out)
    todo = make_jobs(
        grid,
        over,
        known=loaded.data.domains,
        fingerprint=fingerprint(loaded.data),
        out=where,
    )
    console = error_console()
    num_jobs = jobs or (os.cpu_count() or 1 if preset == SMALL else 1)
    done = executed(todo, loaded, console, num_jobs=num_jobs, where=where, dry_run=dry_run)
    if done is None:
        return
    if done.ended:
        from cicf.cli.table import print_tables

        print_tables(done.ended)
        print_line(f"again, and in other formats: cicf table {where} --format latex")
    print_failures(console, done)


def _methods(text: str) -> tuple[str, ...]:
    """Return the methods that are named; `all` stands for those that `cicf methods` lists."""
    from cicf.methods import METHODS as KNOWN

    found = words(text, "--methods")
    return tuple(
        dict.fromkeys(name for each in found for name in (KNOWN if each == "all" else (each,)))
    )
