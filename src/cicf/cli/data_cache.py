"""`cicf data cache`: the decoded images that are kept on disk."""

from pathlib import Path
from typing import Annotated

import typer

from cicf.cli.show import print_json, print_line, print_table

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def cache(
    clear: Annotated[bool, typer.Option("--clear", help="Remove all of them.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option(help="The folder, where it is not the usual one (machine.cache_folder)."),
    ] = None,
    json: Json = False,
) -> None:
    """Show which decoded images are kept for the next run, and how much room they take.

    They are made again when they are needed, so that it is always safe to remove them.
    """
    from cicf.data.cache import clear as remove
    from cicf.data.cache import default_root, kept

    root = folder or default_root()
    found = kept(root)
    if clear:
        remove(root)
    if json:
        sets = [
            {"data": each.path.name, "images": each.images, "bytes": each.bytes} for each in found
        ]
        print_json({"folder": str(root), "is_cleared": clear, "sets": sets})
        return
    total = f"{sum(each.bytes for each in found) / 1e6:,.1f} MB"
    if clear:
        print_line(f"removed {total} of decoded images from {root}")
        return
    rows = [(each.path.name, f"{each.images:,}", f"{each.bytes / 1e6:,.1f} MB") for each in found]
    if rows:
        print_table("decoded images", ("data", "images", "size"), rows, as_json=False)
    print_line(f"{total} in {root}; remove them with --clear")
