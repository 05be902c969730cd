"""Progress where the error stream is a file: a line every ten seconds, by the test's clock."""

import io

import pytest
from rich.console import Console
from rich.progress import MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from boolit.lab.common.progress import LineProgress, count_progress, progress_bars

NAME = "rows [of a long name that does not fit]"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(seconds_a_step: float, steps: int) -> list[str]:
    clock, file = Clock(), io.StringIO()
    columns = (TextColumn("{task.description}", markup=False), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with LineProgress(*columns, console=Console(file=file, width=40), clock=clock) as bars:
        task = bars.add_task(NAME, total=steps)
        for _ in range(steps):
            clock.now += seconds_a_step
            bars.update(task, advance=1)
    return file.getvalue().splitlines()


def test_a_line_after_two_seconds_then_every_ten_and_one_at_the_end() -> None:
    assert lines(4.0, 7) == [
        f"{NAME} 1/7 0:00:04 -:--:--",
        f"{NAME} 4/7 0:00:16 0:00:12",
        f"{NAME} 7/7 0:00:28 0:00:00",
    ]


@pytest.mark.parametrize(("seconds", "steps"), [(0.03, 50), (1.9, 1)])
def test_short_work_prints_nothing(seconds: float, steps: int) -> None:
    assert lines(seconds, steps) == []


def test_lines_where_there_is_no_terminal_or_one_that_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress_bars(console=Console(file=io.StringIO())), LineProgress)
    terminal = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert not isinstance(progress_bars(console=terminal), LineProgress)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(progress_bars(console=dumb), LineProgress)
    monkeypatch.setenv("FORCE_COLOR", "1")  # colors a file, but moves no cursor in it
    assert isinstance(progress_bars(), LineProgress)


def test_nested_bars_are_drawn_together() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, _environ={"TERM": "xterm"})
    with progress_bars(console=console) as first:
        first.add_task("planning")
        with count_progress(console=console) as begin:
            begin("fetching", 2)(1)
            first.refresh()
            assert "fetching" in file.getvalue()
        first.refresh()
        assert file.getvalue().rpartition("fetching")[2].count("planning") >= 1
