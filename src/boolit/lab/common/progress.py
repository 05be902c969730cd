"""How far something is: bars on a terminal, a line now and then where the error stream goes to a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID

SECONDS_A_LINE = 10.0


def progress_bars(
    *columns: ProgressColumn, shown: bool | None = None, console: Console | None = None, **options: Any
) -> Progress:
    """Bars of rich on the error stream, which vanish at the end; lines if that is no terminal; none if ``shown`` is False."""
    console = console or Console(stderr=True)
    if shown is not False and not console.is_terminal:
        return LineProgress(console=console, **options)
    return Progress(*columns, console=console, disable=shown is False, transient=True, **options)


class LineProgress(Progress):
    """Tasks as rich has them, told in a line every ten seconds; what is over sooner says nothing.

    A last line says where it ended if there was one before.
    """

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic, **options: Any) -> None:
        super().__init__(console=console, disable=True, **options)
        self._clock, self._begun, self._told = clock, clock(), clock()
        self._last = ""

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self._tell_in_time()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self._tell_in_time()

    def stop(self) -> None:
        super().stop()
        if self._last:
            self._tell()

    def _tell_in_time(self) -> None:
        if self._clock() - self._told >= SECONDS_A_LINE:
            self._tell()

    def _tell(self) -> None:
        """Says it, unless nothing has changed since."""
        self._told = self._clock()
        said = "; ".join(_text(task) for task in self.tasks if task.completed or task.total)
        if said != self._last:
            elapsed = timedelta(seconds=round(self._told - self._begun))
            self.console.print(f"{elapsed} {said}", markup=False, highlight=False, soft_wrap=True)
            self._last = said


def _text(task: Task) -> str:
    return f"{task.description} {task.completed:.0f}" + (f"/{task.total:.0f}" if task.total else "")
