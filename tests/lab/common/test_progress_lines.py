"""Progress where the error stream goes to a file: a line every ten seconds, by a clock of the test's own."""

import io

import pytest
from rich.console import Console
from rich.progress import Progress

from boolit.lab.common.progress import LineProgress, progress_bars


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def told(seconds_a_step: float, steps: int) -> list[str]:
    clock, file = Clock(), io.StringIO()
    with LineProgress(Console(file=file, width=40), clock) as lines:
        task = lines.add_task("rows [of a long name that does not fit]", total=steps)
        for _ in range(steps):
            clock.now += seconds_a_step
            lines.advance(task)
    return file.getvalue().splitlines()


def test_a_line_every_ten_seconds_and_one_at_the_end() -> None:
    name = "rows [of a long name that does not fit]"
    assert told(4.0, 7) == [f"0:00:12 {name} 3/7", f"0:00:24 {name} 6/7", f"0:00:28 {name} 7/7"]


@pytest.mark.parametrize(("seconds", "steps"), [(0.1, 50), (9.9, 1)])
def test_what_is_over_sooner_says_nothing(seconds: float, steps: int) -> None:
    assert told(seconds, steps) == []


def test_the_last_line_is_not_said_twice() -> None:
    assert told(10.0, 1) == ["0:00:10 rows [of a long name that does not fit] 1/1"]


def test_lines_where_there_is_no_terminal() -> None:
    assert isinstance(progress_bars(console=Console(file=io.StringIO())), LineProgress)
    assert type(progress_bars(console=Console(file=io.StringIO(), force_terminal=True))) is Progress
    hidden = progress_bars(shown=False, console=Console(file=io.StringIO()))
    assert type(hidden) is Progress
    assert hidden.disable
