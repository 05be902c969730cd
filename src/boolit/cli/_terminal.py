"""How the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

JsonOption = Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.")]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """A reader that has left is told as everywhere else in Python; rich would end the process with 1."""
        raise BrokenPipeError


def output() -> Console:
    """Standard output, for results."""
    return _Console(highlight=False)


def progress() -> Console:
    """Standard error, for whatever is not a result."""
    return Console(stderr=True, highlight=False)


def plain_table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines around its cells; headings named in ``right`` have their column aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    return table


def print_json(value: Any) -> None:
    """Indented, and strictly JSON: NaN and infinities are refused rather than written."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))
