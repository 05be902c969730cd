"""How far an encoder is, and how many pictures it takes a second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

from boolit.lab.progress import progress_bars

Advance: TypeAlias = Callable[[int], None]
Begin: TypeAlias = Callable[[str, int, int], Advance]  # what is done, of how many pictures, so many of which are done


class Speed(ProgressColumn):
    """Pictures a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.1f} pictures/s")


@contextmanager
def encoding_bars(shown: bool) -> Iterator[Begin]:
    """Bars on the error stream, or lines if that is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(30), MofNCompleteColumn(), Speed(), TimeRemainingColumn())
    with progress_bars(*columns, shown=shown, speed_estimate_period=120) as bars:

        def begin(what: str, total: int, done: int) -> Advance:
            task = bars.add_task(what, total=total, completed=done)
            return lambda count: bars.advance(task, count)

        yield begin
