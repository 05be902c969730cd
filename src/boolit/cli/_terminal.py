"""How the commands print: tables for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
import textwrap
import webbrowser
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from boolit.lab.common.progress import error_stream

OUTPUT = "Output"  # the group of a help text with what the command writes, and where
JsonOption = Annotated[bool, typer.Option("--json", help="Print a JSON object for programs.", rich_help_panel=OUTPUT)]
_TOGETHER = re.compile(r"\bp [=<] |\S+ ± \S+ %|\d %| \([dp]\)")
UNCUT = 10_000  # columns of what is no terminal: a file has no edge at which words would be cut


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """A reader that has left is told as everywhere else in Python; rich would end the process with 1."""
        raise BrokenPipeError


def output() -> Console:
    """Standard output, for results; as wide as they are where it is no terminal, unless COLUMNS says how wide."""
    wide = not sys.stdout.isatty() and not os.environ.get("COLUMNS")
    return _Console(highlight=False, width=UNCUT if wide else None)


def progress() -> Console:
    """Standard error, for whatever is not a result."""
    return error_stream()


def plain_table(*headings: str, right: tuple[str, ...] = ()) -> Table:
    """A table without lines around its cells; headings named in ``right`` have their column aligned to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left", overflow="fold")
    return table


def print_json(value: Any) -> None:
    """Indented, and strictly JSON: NaN and infinities are refused rather than written."""
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def wrap(text: str, width: int) -> str:
    """Sentences in lines of at most that width; a p-value, a number with its error and an ensemble's (d) stay in one line.

    Example:
        >>> print(wrap("XNORᵢₗ is better than ReLU (p = 3e-15).", 34))
        XNORᵢₗ is better than ReLU
        (p = 3e-15).
    """
    kept = _TOGETHER.sub(lambda found: found[0].replace(" ", "\u00a0"), text)  # which textwrap does not break at
    return textwrap.fill(kept, width, break_long_words=False, break_on_hyphens=False).replace("\u00a0", " ")


def activation_name(spec: str, console: Console) -> str:
    """An activation as the paper writes it, or its spec where the stream has no small letters."""
    from boolit.lab.results.names import paper_name

    return spec if console.options.ascii_only else paper_name(spec)


def offer_to_open(page: Path) -> None:
    """Asks whether to show a page in the browser; where nobody could answer or see it, nothing is asked."""
    if not (sys.stdin.isatty() and sys.stdout.isatty() and has_browser()):
        return
    try:
        answer = input("Open the report in your browser? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() in ("y", "yes"):
        webbrowser.open(page.resolve().as_uri())


def has_browser() -> bool:
    """Whether there is a desktop with a browser; one that would take over the terminal does not count."""
    if sys.platform not in ("win32", "darwin") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        return type(webbrowser.get()) is not webbrowser.GenericBrowser or bool(os.environ.get("BROWSER"))
    except webbrowser.Error:
        return False
