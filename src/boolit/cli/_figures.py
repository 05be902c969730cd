"""``boolit figures``: the paper's figures that need no training."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from boolit.cli._terminal import output, progress


def figures(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]…", help="Which; all unless given (see boolit list figures).")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("figures"),
    format: Annotated[str, typer.Option("--format", "-f", help="png, svg or pdf.")] = "png",  # noqa: A002
) -> None:
    """Draw the paper's figures that need no training."""
    from rich.progress import Progress

    from boolit.lab.reports.figures import FIGURES, draw

    console = progress()
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("drawing", total=len(names or FIGURES))
        paths = draw(names or [], out, format, lambda _: bar.advance(task))
    for path in paths:
        output().print(escape(str(path)))
