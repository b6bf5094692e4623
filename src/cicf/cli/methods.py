"""`cicf methods`."""

from typing import Annotated

import typer

from cicf.cli.show import print_table


def methods(
    name: Annotated[
        str | None, typer.Argument(help="A method, to see its options; none for the list.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the methods, or the options of one with defaults and meaning."""
    from cicf.config import method_kind
    from cicf.methods import METHODS

    if name is None:
        rows = [(each, str(kind.__doc__).splitlines()[0]) for each, kind in METHODS.items()]
        print_table("methods", ("method", "what it does"), rows, as_json=json)
        return
    fields = method_kind(name).model_fields
    options = [
        (f"method.{field}", str(info.default), (info.description or "").replace("\n", " "))
        for field, info in fields.items()
        if field != "name"
    ]
    columns = ("option, for --set", "default", "meaning")
    print_table(f"options of {name}", columns, options, as_json=json)
