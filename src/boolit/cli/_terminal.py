"""How the commands print: tables for people, JSON for programs, errors as one line."""

from __future__ import annotations

import json
import sys
from typing import Any

from rich.console import Console
from rich.table import Table

from boolit._command import follows

LONGEST = 1_000  # characters of an error


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


def print_error(message: object) -> None:
    """``error: …`` on standard error, on one line whatever the message holds; of several processes, one says it."""
    line = " ".join(str(message).split())
    if not follows():
        print("error:", line if len(line) <= LONGEST else f"{line[:LONGEST]}…", file=sys.stderr)
