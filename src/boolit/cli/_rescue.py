"""``boolit rescue``: what is intact of a damaged store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from boolit.cli._terminal import output, print_json


def rescue(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder whose store is damaged.")],
    to: Annotated[Path | None, typer.Option("--to", help="The new folder; DIR-rescued unless given.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
) -> None:
    """Copy every intact run of a damaged store to a new folder.

    The damaged store is only read. Go on with the new folder: `boolit run` trains again what was lost.
    """
    from boolit.lab.results.rescue import rescue as copy

    found = copy(folder, to or folder.resolve().with_name(f"{folder.resolve().name}-rescued"))
    if json:
        entry = {"kept": found.kept, "lost": list(found.lost), "checked": found.checked, "folder": str(found.folder)}
        print_json(entry)
        return
    console = output()
    lost = f"{len(found.lost)} lost: {', '.join(found.lost)}" if found.lost else "none known to be lost"
    console.print(f"{found.kept} runs copied to {escape(str(found.folder))}; {lost}.", soft_wrap=True)
    if not found.checked:
        console.print("The store is of version 1, which has no checksums: what could be read was taken.", soft_wrap=True)
