"""Progress bars on a terminal; a line every ten seconds where the error stream is a file."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

SECONDS_PER_LINE = 10.0
SPACE_FOR_OTHERS = 60  # columns of a terminal for counts, times and the bar; a longer description ends in …
SECONDS_TO_FIRST_LINE = 2.0
Advance: TypeAlias = Callable[[int], None]  # called with the number of further items that are done
Begin: TypeAlias = Callable[..., Advance]  # starts a bar; called with a description, a total and the number already done


@contextmanager
def count_progress(shown: bool | None = None, console: Console | None = None) -> Iterator[Begin]:
    """Yield a function that starts bars which count items."""
    columns = (MofNCompleteColumn(), TimeRemainingColumn(), TimeElapsedColumn())
    with progress_bars(*columns, shown=shown, console=console, speed_estimate_period=120) as bars:

        def begin(what: str, total: int | None = None, done: int = 0) -> Advance:
            task = bars.add_task(what, total=total, completed=done)
            return lambda count: bars.update(task, advance=count)

        yield begin


@contextmanager
def show_working(what: str, shown: bool | None = None) -> Iterator[None]:
    """Show what is being done and for how long, without a total."""
    with progress_bars(TimeElapsedColumn(), shown=shown) as bars:
        bars.add_task(what, total=None)
        yield


def progress_bars(
    *columns: ProgressColumn, shown: bool | None = None, console: Console | None = None, **options: Any
) -> Progress:
    """Return transient bars on the error stream, or lines if it is not a terminal.

    Args:
        columns: columns before the bar and the description, which a narrow terminal cuts off.
        shown: False shows nothing.
        console: defaults to the error stream.
        options: passed to `rich.progress.Progress`.
    """
    console = console or error_stream()
    description = TextColumn("{task.description}", markup=False)
    if shown is not False and (console.is_dumb_terminal or not console.is_terminal):
        return LineProgress(description, *columns, console=console, **options)
    description.get_table_column().max_width = max(10, console.width - SPACE_FOR_OTHERS)
    return Progress(*columns, BarColumn(20), description, console=console, disable=shown is False, transient=True, **options)


def error_stream() -> Console:
    """Return the console on standard error, which draws bars only on a terminal, even with FORCE_COLOR."""
    return _error_stream(sys.stderr is not None and sys.stderr.isatty())


@cache
def _error_stream(terminal: bool) -> Console:  # the same one for all bars, so that nested ones are drawn below each other
    return Console(stderr=True, highlight=False, force_terminal=terminal)


class LineProgress(Progress):
    """Tasks printed as a line when they are updated: the first after two seconds, then one every ten, and a last one."""

    def __init__(self, *columns: ProgressColumn, console: Console, clock: Callable[[], float] = time.monotonic, **options: Any):
        super().__init__(*columns, console=console, disable=True, get_time=clock, **options)
        self._line_columns, self._clock = columns, clock
        self._due, self._last = clock() + SECONDS_TO_FIRST_LINE, ""

    def stop(self) -> None:
        """Print the last line if there was one before."""
        super().stop()
        if self._last:
            self._print()
        self._last = ""

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Update a task, and print a line if it is time."""
        super().update(task_id, **changes)
        if self._clock() >= self._due:
            self._print()

    def _print(self) -> None:
        self._due = self._clock() + SECONDS_PER_LINE
        rendered = ([str(column.render(task)).strip() for column in self._line_columns] for task in self.tasks if task.visible)
        line = "; ".join(" ".join(cells) for cells in rendered)
        if line != self._last:
            self.console.print(line, markup=False, highlight=False, soft_wrap=True)
        self._last = line
