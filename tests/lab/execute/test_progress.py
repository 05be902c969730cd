"""Bars on a terminal, lines elsewhere."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from boolit.lab.common import progress
from boolit.lab.execute.local import StudyProgress


def shown(console: Console, enabled: bool | None = None) -> str:
    with StudyProgress(10, 2, enabled, console) as bars:
        bars.begin("xnor_ail, 28 parameters, 5 runs")
        for epoch in (1, 2, 3):
            at = SimpleNamespace(step=0, epoch=epoch)
            bars.after_step(SimpleNamespace(at=at, job=SimpleNamespace(recipe=SimpleNamespace(epochs=3), runs=5)))
        bars.finish(5)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_terminal_shows_epochs_and_runs() -> None:
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=120))
    assert "xnor_ail, 28 parameters, 5 runs: epochs" in text
    assert "3/3" in text
    assert "7/10" in text


def test_a_file_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    monkeypatch.setattr(progress, "SECONDS_TO_FIRST_LINE", 0.0)
    assert "runs 5/10; xnor_ail, 28 parameters, 5 runs: epochs 2/3" in shown(Console(file=io.StringIO()))


def test_it_can_be_hidden() -> None:
    assert shown(Console(file=io.StringIO(), force_terminal=True), False) == ""
