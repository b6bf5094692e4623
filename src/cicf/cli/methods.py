"""`cicf methods` and `cicf options`: what there is to choose from."""

from typing import TYPE_CHECKING, Annotated

import typer

from cicf.cli.show import print_markdown, print_table

if TYPE_CHECKING:
    from cicf.method import MethodConfig

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
LIST = (
    "method",
    "what it does",
    "domain labels",
    "extra networks",
    "order",
    "cost against ERM",
    "reference",
)
COLUMNS = ("option, for --set", "default", "meaning")


def methods(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="A method, to see its options; none for the list."),
    ] = None,
    json: Json = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the list as a table in Markdown.")
    ] = False,
) -> None:
    """List the methods, or the options of one with defaults and meaning."""
    from cicf.config import described, method_config
    from cicf.methods import METHODS

    if name is None:
        rows = [_row(each, kind) for each, kind in METHODS.items()]
        if markdown:
            print_markdown(LIST, rows)
            return
        print_table("methods", LIST, rows, as_json=json, unbroken="method")
        return
    found = list(described(method_config({"name": name}), "method."))[1:]
    print_table(f"options of {name}", COLUMNS, found, as_json=json)


def options(
    data: Annotated[
        str,
        typer.Argument(metavar="DATA", help="What to learn from, on which some defaults depend."),
    ] = "demo",
    method: Annotated[str, typer.Option(help="The method to list the options of.")] = "cicf",
    json: Json = False,
) -> None:
    """List everything that can be set for a training, with defaults and meaning."""
    from cicf.config import described
    from cicf.experiment import recipe

    found = list(described(recipe(data, {"method": {"name": method}})))
    print_table(f"options of cicf train {data} --method {method}", COLUMNS, found, as_json=json)


def _row(name: str, kind: "type[MethodConfig]") -> tuple[str, ...]:
    about = kind.about
    return (
        name,
        str(kind.__doc__).splitlines()[0],
        "yes" if about.needs_domains else "no",
        about.extra_networks,
        str(about.order),
        "–" if about.cost is None else f"{about.cost:.2g}",
        about.reference,
    )
