"""Figures by name into files."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from pathlib import Path

from boolit.lab.errors import UserError
from boolit.lab.reports.figures._catalogue import FIGURES
from boolit.lab.reports.figures._style import FORMATS, save


def draw(
    names: Iterable[str],
    out: Path,
    format: str = "png",  # noqa: A002 (the command's option has that name)
    progress: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Draws the named figures, or all if none is named, as ``out/NAME.FORMAT``; ``progress`` gets each file once written."""
    chosen = list(dict.fromkeys(names)) or list(FIGURES)
    _check(chosen, format)
    paths = []
    for name in chosen:
        path = out / f"{name}.{format}"
        figure = FIGURES[name].draw()
        try:
            out.mkdir(parents=True, exist_ok=True)
            save(figure, path, FIGURES[name].caption)
        except OSError as error:
            raise UserError(
                f"cannot write {path}: {error.strerror or error}; choose a folder that can be written to"
            ) from error
        paths.append(path)
        if progress is not None:
            progress(path)
    return paths


def _check(names: list[str], format: str) -> None:  # noqa: A002 (as above)
    if format not in FORMATS:
        raise UserError(f"unknown format {format!r}; choose one of {', '.join(FORMATS)}")
    for name in names:
        if name not in FIGURES:
            raise UserError(f"unknown figure {name!r}; {_hint(name)}")


def _hint(name: str) -> str:
    near = [known for known in FIGURES if name and name in known] or difflib.get_close_matches(name, FIGURES, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(near[:4])}?" if near else f"choose from {', '.join(FIGURES)}"
