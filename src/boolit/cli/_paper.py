"""``boolit paper``: the paper's printed tables, with a folder's results beside them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from boolit.cli._terminal import output, print_json
from boolit.lab.errors import UserError


def paper(
    label: Annotated[str | None, typer.Argument(metavar="[TABLE]", help="A table's label, such as tab:mlp-mnist.")] = None,
    results: Annotated[
        Path | None, typer.Option("--results", "-r", metavar="DIR", help="A folder that boolit run wrote, to set beside it.")
    ] = None,
    format: Annotated[  # noqa: A002
        str | None, typer.Option("--format", "-f", help="markdown, latex, html or csv instead of a terminal table.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")] = False,
) -> None:
    """Show a table of the paper, or which there are; with --results, your own numbers beside the paper's."""
    from boolit.lab.paper import tables
    from boolit.lab.reports.paper_tables import paper_table
    from boolit.lab.reports.tables import render, terminal_table
    from boolit.lab.results.store import Store

    if label is None:
        print_json({"tables": tables()}) if json else print("\n".join(tables()))
        return
    label = label if label.startswith("tab:") else f"tab:{label}"
    if results is None:
        table = paper_table(label)
    else:
        with Store(results, create=False) as store:
            records = store.records()
        if not records:
            raise UserError(f"{results} has no finished runs to set beside {label}; run the table's study into it first")
        table = paper_table(label, records)
    if json:
        print_json({"table": render(table, "csv"), "notes": list(table.notes)})
    elif format is not None:
        print(render(table, format), end="")
    else:
        output().print(terminal_table(table, output().width))
