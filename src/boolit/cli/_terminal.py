"""Printing: tables for people on standard output, JSON for programs."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

UNCUT = 10_000  # columns of a file or a pipe, where nothing needs to be wrapped


class _Console(Console):
    def on_broken_pipe(self) -> None:
        raise BrokenPipeError  # rich would exit with code 1


def output() -> Console:
    """Return a console on standard output: as wide as the terminal or COLUMNS, or unlimited in a pipe."""
    unlimited = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return _Console(highlight=False, width=UNCUT if unlimited else None)


def plain_table(*headings: str, right: Sequence[str] = ()) -> Table:
    """Return a table without borders. The columns named in ``right`` are aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def print_json(value: Any) -> None:
    """Print indented JSON; NaN and infinities raise ValueError."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def count_runs(number: int) -> str:
    """Return a number of runs with its noun."""
    return f"{number:,} run" if number == 1 else f"{number:,} runs"


def activation_name(spec: str, console: Console) -> str:
    """Return an activation's name in the paper, or its spec if the console has no subscripts."""
    from boolit.lab.results.names import paper_name

    return spec if console.options.ascii_only else paper_name(spec)
