"""How many problems are done, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

Advance: TypeAlias = Callable[[int], None]
Begin: TypeAlias = Callable[[str, int], Advance]  # what is done, to how many problems


def silent(_: int) -> None:
    """Shows nothing."""


@contextmanager
def problem_bars(shown: bool = True, console: Console | None = None) -> Iterator[Begin]:
    """Bars on the error stream, if that is a terminal."""
    console = console or Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not (shown and console.is_terminal), transient=True) as bars:

        def begin(what: str, total: int) -> Advance:
            task = bars.add_task(what, total=total)
            return lambda count: bars.advance(task, count)

        yield begin
