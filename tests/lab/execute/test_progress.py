"""Bars on a terminal, lines elsewhere."""

import io

import pytest
from rich.console import Console

from boolit.lab.common import progress
from boolit.lab.execute.progress import StudyProgress
from boolit.lab.runs import RunConfig
from boolit.lab.training import Job, StackedTraining


def shown(console: Console, training: StackedTraining, shown: bool | None = None, already: int = 0) -> str:
    with StudyProgress(10, shown, console, already) as bars:
        bars.begin("xnor_ail", 28, 5)
        while not training.done:
            training.step()
            bars.after_step(training)
        bars.finish(5)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture
def training() -> StackedTraining:
    recipe = {"learning_rate": 0.01, "epochs": 3, "batch": 32}
    config = RunConfig(
        data={"name": "parity", "train": 256, "test": 200},
        model={"name": "mlp"},
        activation="xnor_ail",
        width=[4, 2],
        training=recipe,
    )
    return StackedTraining(Job.of([config.replace(seed=seed) for seed in range(5)]))


def test_a_terminal_sees_cohort_epochs_and_runs(training: StackedTraining) -> None:
    text = shown(Console(file=io.StringIO(), force_terminal=True, width=120), training)
    assert "XNORₐᵢₗ, 28 parameters, 5 runs: epochs" in text
    assert "3/3" in text
    assert "5/10" in text


def test_a_file_sees_how_many_at_once_and_where_it_ended(training: StackedTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 3600.0)
    first, last = shown(Console(file=io.StringIO()), training, already=2).splitlines()
    assert first == "0:00:00 training 8 runs … (2 are there already)"
    assert last.partition(" ")[2].startswith("runs 5/10; XNORₐᵢₗ, 28 parameters, 5 runs: epochs 3/3")


def test_a_file_sees_nothing_where_nothing_is_left_to_train() -> None:
    file = io.StringIO()
    with StudyProgress(1, None, Console(file=file), already=1) as bars:
        bars.finish(1)
    assert file.getvalue() == ""


def test_a_file_sees_lines_of_what_takes_long(training: StackedTraining, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SECONDS_PER_LINE", 0.0)
    lines = shown(Console(file=io.StringIO()), training).splitlines()
    for epoch, runs in enumerate((2, 3, 5), start=1):  # of five runs, thirds
        assert any(f"runs {runs}/10; XNORₐᵢₗ, 28 parameters, 5 runs: epochs {epoch}/3" in line for line in lines)


def test_a_stream_without_small_letters_gets_specs() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    with StudyProgress(10, None, Console(file=file)) as bars:
        bars.begin("xnor_ail", 28, 5)
    file.seek(0)
    assert "xnor_ail, 28 parameters" in file.read()


def test_it_can_be_turned_off(training: StackedTraining) -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    assert shown(console, training, shown=False) == ""
