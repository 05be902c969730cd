"""How far something is: bars on a terminal, a line every ten seconds where the error stream goes to a file."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, ClassVar, Protocol, TypeAlias

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
SECONDS_UNSAID = 2.0  # what is over by then is not worth a line
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


@contextmanager
def show_working(what: str, shown: bool | None = None, console: Console | None = None) -> Iterator[None]:
    """Says what is being done, and since when, while it is not known how much of it there is."""
    with progress_bars(TimeElapsedColumn(), shown=shown, console=console) as bars:
        bars.add_task(what, total=None)
        yield


def byte_progress(console: Console | None = None) -> Progress:
    """Bars that count bytes; the lines of a file count megabytes."""
    columns = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return progress_bars(*columns, console=console, unit=(1e6, " MB"))


def progress_bars(
    *columns: ProgressColumn,
    shown: bool | None = None,
    lines: bool = True,
    console: Console | None = None,
    unit: tuple[float, str] = (1.0, ""),
    **options: Any,
) -> Progress:
    """Bars of rich on the error stream, with more columns after the description and the bar; they vanish at the end.

    If the stream is no terminal, lines instead, which count in ``unit``, unless ``lines`` is False; nothing if ``shown`` is
    False. Bars that begin while others are shown take their place until they end.
    """
    console = console or error_stream()
    terminal = console.is_terminal and not console.is_dumb_terminal
    if shown is not False and lines and not terminal:
        return LineProgress(console, unit=unit, **options)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(30), *columns)
    hidden = shown is False or not terminal
    return BarProgress(*columns, console=console, disable=hidden, transient=True, **options)


def error_stream() -> Console:
    """Standard error, with bars on a terminal only: FORCE_COLOR colours a file, it cannot move its cursor."""
    return Console(stderr=True, highlight=False, force_terminal=sys.stderr is not None and sys.stderr.isatty())


class SpeedColumn(ProgressColumn):
    """How many of something per second."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        self.unit = unit

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} {self.unit}/s")


class BarProgress(Progress):
    """Bars of which only the innermost are drawn: two that move the cursor would overwrite each other."""

    _drawn: ClassVar[list[BarProgress]] = []  # the outermost first

    def start(self) -> None:
        if not self.disable:
            if self._drawn:
                self._drawn[-1].live.stop()
            self._drawn.append(self)
        super().start()

    def stop(self) -> None:
        super().stop()
        if self in self._drawn:
            self._drawn.remove(self)
            if self._drawn:
                self._drawn[-1].live.start(refresh=True)


class LineProgress(Progress):
    """Tasks as rich has them, printed as a line every ten seconds by a thread, whether or not anything has moved.

    What is over within two seconds prints nothing, unless `print_now` did; a last line says where the counting ended if there
    was one before.
    """

    def __init__(
        self,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        unit: tuple[float, str] = (1.0, ""),
        **options: Any,
    ) -> None:
        super().__init__(console=console, disable=True, get_time=clock, **options)
        self._clock = clock
        self._divisor, self._unit = unit
        self._begun = self._printed = clock()
        self._last = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._printing = threading.Lock()

    def start(self) -> None:
        if self._thread is not None:
            return
        super().start()
        self._thread = threading.Thread(target=self._keep_printing, name="progress", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread before the last line is printed, so that nothing follows it."""
        super().stop()
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._last and any(_is_counted(task) for task in self.tasks):
            self._print(self._status())
            self._last = ""

    def update(self, task_id: TaskID, **changes: Any) -> None:
        super().update(task_id, **changes)
        self.print_if_due()

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        super().advance(task_id, advance)
        self.print_if_due()

    def print_now(self, line: str) -> None:
        """Prints this line, and from now on one every ten seconds."""
        with self._printing:
            self._print(line)

    def print_if_due(self) -> None:
        """Prints a line if the last one is ten seconds ago; the first comes after two."""
        with self._printing:
            if not self._ended.is_set() and self._due() <= 0:
                self._print(self._status())

    def _due(self) -> float:
        """The seconds until the next line."""
        return self._printed + (SECONDS_PER_LINE if self._last else SECONDS_UNSAID) - self._clock()

    def _keep_printing(self) -> None:
        while not self._ended.wait(max(self._due(), 0.01)):
            self.print_if_due()

    def _print(self, line: str) -> None:
        self._printed = self._clock()
        if line:
            line = f"{timedelta(seconds=round(self._printed - self._begun))} {line}"
            if line != self._last:
                self.console.print(line, markup=False, highlight=False, soft_wrap=True)
            self._last = line

    def _status(self) -> str:
        """Every task with how far it is; of the first, which is the whole, the time that is left."""
        tasks = [task for task in self.tasks if task.visible]
        line = "; ".join(self._text(task) for task in tasks)
        left = tasks[0].time_remaining if tasks and not tasks[0].finished else None
        return line if left is None else f"{line}; about {timedelta(seconds=round(left))} left"

    def _text(self, task: Task) -> str:
        count = f" {task.completed / self._divisor:.0f}" if _is_counted(task) else " …"
        return f"{task.description}{count}" + (f"/{task.total / self._divisor:.0f}{self._unit}" if task.total else "")


def _is_counted(task: Task) -> bool:
    return bool(task.completed or task.total)
