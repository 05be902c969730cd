"""Progress where the error stream goes to a file: a line every ten seconds, by a clock of the test's own."""

import io
import re
import subprocess
import sys
import threading

import pytest
from rich.console import Console
from rich.progress import Progress

from boolit.lab.common import progress
from boolit.lab.common.progress import LineProgress, count_progress, progress_bars, show_working

NAME = "rows [of a long name that does not fit]"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class UnstartedLines(LineProgress):
    """Lines without their thread, so that the test's clock alone decides."""

    def _keep_printing(self) -> None:
        pass


def told(seconds_a_step: float, steps: int, first: str = "") -> list[str]:
    clock, file = Clock(), io.StringIO()
    with UnstartedLines(Console(file=file, width=40), clock) as lines:
        if first:
            lines.print_now(first)
        task = lines.add_task(NAME, total=steps)
        for _ in range(steps):
            clock.now += seconds_a_step
            lines.advance(task)
    return file.getvalue().splitlines()


def test_a_line_after_two_seconds_then_every_ten_and_one_at_the_end() -> None:
    assert told(4.0, 7) == [
        f"0:00:04 {NAME} 1/7",
        f"0:00:16 {NAME} 4/7; about 0:00:12 left",
        f"0:00:28 {NAME} 7/7",
    ]


@pytest.mark.parametrize(("seconds", "steps"), [(0.03, 50), (1.9, 1)])
def test_what_is_over_sooner_says_nothing(seconds: float, steps: int) -> None:
    assert told(seconds, steps) == []


def test_a_line_at_once_is_followed_by_a_last_one() -> None:
    assert told(0.5, 1, first="starting") == ["0:00:00 starting", f"0:00:00 {NAME} 1/1"]


def test_a_line_comes_though_nothing_moves() -> None:
    clock, file = Clock(), io.StringIO()
    with UnstartedLines(Console(file=file), clock) as lines:
        lines.add_task("waiting", total=None)
        for now in (1.0, 3.0, 4.0, 13.0, 14.0, 23.0):
            clock.now = now
            lines.print_if_due()  # what the thread does when it wakes
    assert file.getvalue().splitlines() == [f"0:00:{second} waiting …" for second in ("03", "13", "23")]


class WatchedFile(io.StringIO):
    """A stream that says when it has been written to."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def write(self, text: str) -> int:
        count = super().write(text)
        self.written.set()
        return count


def test_the_thread_prints_by_itself_and_ends_with_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_UNSAID", 0.0)
    file = WatchedFile()
    with show_working("thinking", console=Console(file=file)):
        assert file.written.wait(60)
    assert "progress" not in [thread.name for thread in threading.enumerate()]
    assert re.fullmatch(r"(0:00:\d\d thinking …\n)+", file.getvalue())


def test_the_thread_ends_where_the_work_fails() -> None:
    with pytest.raises(ZeroDivisionError), count_progress(console=Console(file=io.StringIO())):
        raise ZeroDivisionError
    assert "progress" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="the system has no fork")
def test_a_fork_prints_nothing() -> None:
    code = (
        "import os, sys, threading\n"
        "from boolit.lab.common import progress\n"
        "progress.SECONDS_UNSAID = progress.SECONDS_PER_LINE = 60\n"
        "with progress.show_working('thinking'):\n"
        "    child = os.fork()\n"
        "    if not child: os._exit(threading.active_count() - 1)\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_lines_where_there_is_no_terminal_or_one_that_cannot_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(progress_bars(console=Console(file=io.StringIO())), LineProgress)
    terminal = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"})
    assert not isinstance(progress_bars(console=terminal), LineProgress)
    dumb = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    assert isinstance(progress_bars(console=dumb), LineProgress)
    monkeypatch.setenv("FORCE_COLOR", "1")  # colours a file, but moves no cursor in it
    assert isinstance(progress_bars(), LineProgress)


def test_nothing_where_it_is_not_shown() -> None:
    hidden = progress_bars(shown=False, console=Console(file=io.StringIO()))
    assert isinstance(hidden, Progress)
    assert not isinstance(hidden, LineProgress)
    assert hidden.disable


def test_of_bars_within_bars_the_inner_ones_are_drawn() -> None:
    outer, inner = (Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"}) for _ in range(2))
    with progress_bars(console=outer) as first:
        first.add_task("planning")
        assert first.live.is_started
        with progress_bars(console=inner) as second:
            second.add_task("fetching")
            assert second.live.is_started
            assert not first.live.is_started
        assert first.live.is_started
    assert not first.live.is_started
    assert isinstance(inner.file, io.StringIO)
    assert "fetching" in inner.file.getvalue()
