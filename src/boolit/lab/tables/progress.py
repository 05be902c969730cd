"""Showing how far the preparation of a table is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from boolit.lab.progress import progress_bars


class Step(Protocol):
    """Told how many more rows (or columns) are done."""

    def __call__(self, done: int) -> None: ...


class TableProgress:
    """One bar for each step of a preparation."""

    def __init__(self, bars: Progress) -> None:
        self._bars = bars

    def step(self, name: str, total: int | None = None) -> Step:
        """Begins a step; ``total`` may not be known yet."""
        task = self._bars.add_task(name, total=total)

        def advance(done: int) -> None:
            self._bars.advance(task, done)

        return advance


@contextmanager
def table_progress(shown: bool | None = None) -> Iterator[TableProgress]:
    """Bars on the error stream, or lines if that is no terminal; they vanish at the end, and ``shown`` may hide them."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with progress_bars(*columns, shown=shown) as bars:
        yield TableProgress(bars)
