"""The command line: its commands, and how mistakes are told."""

import io
import logging
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

import cicf
from cicf.cli.ablate import ablate
from cicf.cli.audit import audit
from cicf.cli.bench import bench
from cicf.cli.cost import cost
from cicf.cli.data import list_, verify
from cicf.cli.data_cache import cache
from cicf.cli.data_import import fetch, import_
from cicf.cli.figure import figure
from cicf.cli.inspect import evaluate, explain, export, predict
from cicf.cli.methods import methods, options
from cicf.cli.preset import preset
from cicf.cli.report import report
from cicf.cli.sampling import sampling
from cicf.cli.table import table
from cicf.cli.train import train
from cicf.core.errors import CicfError

INTERRUPTED = 130
SIGNALS = (signal.SIGTERM, signal.SIGHUP)
"""What ends a command as an interrupt does: its workers are stopped, and its files put in order."""

app = typer.Typer(
    name="cicf",
    help="Train an image classifier that learns causes instead of confounders, and look inside it.",
    epilog="Start with: cicf train demo --target blended",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("train")(train)
app.command("eval")(evaluate)
app.command("predict")(predict)
app.command("explain")(explain)
app.command("audit")(audit)
app.command("export")(export)
app.command("bench")(bench)
app.command("ablate")(ablate)
app.command("cost")(cost)
app.command("table")(table)
app.command("report")(report)
app.command("sampling")(sampling)
app.command("preset")(preset)
app.command("methods")(methods)
app.command("options")(options)

data = typer.Typer(
    help="Bring the paper's benchmarks into one layout, and see whether they are whole.",
    no_args_is_help=True,
)
data.command("list")(list_)
data.command("verify")(verify)
data.command("import")(import_)
data.command("fetch")(fetch)
data.command("cache")(cache)
app.add_typer(data, name="data")
app.add_typer(figure, name="figure")


def _version(is_asked: bool) -> bool:
    if is_asked:
        typer.echo(f"cicf {cicf.__version__}")
        raise typer.Exit
    return is_asked


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """Run a command; a user's mistake is one sentence and exit code 2, never a traceback."""
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Where θ cannot be written, better a question mark than no result.
        sys.stdout.reconfigure(errors="replace")
    # So that a network in the user's own folder is found as package.module:build; last, so that
    # nothing there hides a module of ours.
    sys.path.append("")
    try:
        with _interruptible():
            app()
    except CicfError as error:
        sys.exit(_told(str(error), code=2))
    except OSError as error:
        sys.exit(_told(f"{error}; check the path, its permissions and the space left", code=2))
    except SystemExit as ended:
        # What typer makes of a keyboard interrupt, without a word.
        if ended.code == INTERRUPTED:
            _told("stopped; start the same command again, train with --resume", code=INTERRUPTED)
        raise


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let a request to end, or a terminal that closes, do what an interrupt does: tidy up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # What nohup ignores stays ignored.
    old = {
        number: handler
        for number in SIGNALS
        if (handler := signal.getsignal(number)) is not signal.SIG_IGN
    }
    for number in old:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def _told(sentence: str, *, code: int) -> int:
    typer.echo(f"cicf: {sentence}", err=True)
    return code
