"""How far something is: bars on a terminal, a line now and then where the error stream goes to a file."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Protocol, TypeAlias

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.text import Text

SECONDS_PER_LINE = 10.0
Advance: TypeAlias = Callable[[int], None]  # called with how many more are done


class Begin(Protocol):
    """Starts a bar, with its description, and how many of how many are done; the total may not be known yet."""

    def __call__(self, what: str, total: int | None = None, done: int = 0) -> Advance: ...


@contextmanager
def count_progress(
    shown: bool | None = None, lines: bool = True, unit: str = "", console: Console | None = None
) -> Iterator[Begin]:
    """Bars that count things, one after another; with a ``unit`` they say how many per second. The rest as `progress_bars`."""
    columns = (MofNCompleteColumn(), *((SpeedColumn(unit),) if unit else ()), TimeElapsedColumn(), TimeRemainingColumn())
    with progress_bars(*columns, shown=shown, lines=lines, console=console, speed_estimate_period=120) as bars:

        def begin(what: str, total: int | None = None, done: int = 0) -> Advance:
            task = bars.add_task(what, total=total, completed=done)
            return lambda count: bars.advance(task, count)

        yield begin


def byte_progress(console: Console | None = None) -> Progress:
    """Bars that count bytes, on a terminal only."""
    return progress_bars(DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn(), lines=False, console=console)


def progress_bars(
    *columns: ProgressColumn, shown: bool | None = None, lines: bool = True, console: Console | None = None, **options: Any
) -> Progress:
    """Bars of rich on the error stream, with more columns after the description and the bar; they vanish at the end.

    If the stream is no terminal, lines instead, unless ``lines`` is False; nothing if ``shown`` is False.
    """
    console = console or Console(stderr=True)
    if shown is not False and lines and not console.is_terminal:
        return LineProgress(console=console, **options)
    hidden = shown is False or (not console.is_terminal and not lines)
    columns = (TextColumn("{task.description}"), BarColumn(30), *columns)
    return Progress(*columns, console=console, disable=hidden, transient=True, **options)


class SpeedColumn(ProgressColumn):
    """How many of something per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} {self.unit}/s")


class LineProgress(Progress):
    """Tasks as rich has them, printed as a line every ten seconds; what is over sooner prints nothing.

    A last line says where it ended if there was one before.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, **options: Any) -> None:
        super().__init__(console=console, disable=True, **options)
        self._clock, self._begun, self._printed = clock, clock(), clock()
        self._last = ""

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._print_in_time()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._print_in_time()

    def stop(self) -> None:
        super().stop()
        if self._last:
            self._print()

    def _print_in_time(self) -> None:
        if self._clock() - self._printed >= SECONDS_PER_LINE:
            self._print()

    def _print(self) -> None:
        """Prints a line, unless nothing has changed since the last one."""
        self._printed = self._clock()
        line = "; ".join(_text(task) for task in self.tasks if task.completed or task.total)
        if line != self._last:
            elapsed = timedelta(seconds=round(self._printed - self._begun))
            self.console.print(f"{elapsed} {line}", markup=False, highlight=False, soft_wrap=True)
            self._last = line


def _text(task: Task) -> str:
    return f"{task.description} {task.completed:.0f}" + (f"/{task.total:.0f}" if task.total else "")
