"""``boolit export``: a folder's runs as a table for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from boolit.cli._terminal import output


def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A folder that boolit run wrote.")],
    format: Annotated[str, typer.Option("--format", "-f", help="csv, parquet or json.")] = "csv",  # noqa: A002
    to: Annotated[Path | None, typer.Option("--to", help="The file to write; DIR/runs.FORMAT unless given.")] = None,
    history: Annotated[bool, typer.Option("--history", help="Also write every metric by epoch.")] = False,
) -> None:
    """Write a folder's runs as a table: one row a run."""
    from boolit.lab.results.export import export as write
    from boolit.lab.results.store import Store

    with Store(folder, create=False) as store:
        for path in write(store, to or folder / f"runs.{format}", format, history):
            output().print(escape(str(path)))
