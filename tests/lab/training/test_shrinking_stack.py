"""Runs that have stopped leave the stack, and nobody else notices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from boolit.lab.runs import RunConfig
from boolit.lab.training import Checkpoint, CohortResult, Job, StackedTraining, train
from boolit.lab.training.cohort import FEWEST, SHRINK_AT, ShrinkingStack, active_runs, outcomes

RUNS = 24


def job(path: Path) -> Job:
    """Noise to learn by heart: with the rates of most runs the validation loss rises soon, with the others it falls slowly."""
    drawn = torch.Generator().manual_seed(0)
    numbers, labels = torch.randn(120, 4, generator=drawn).tolist(), torch.randint(2, (120,), generator=drawn).tolist()
    lines = [",".join(map(repr, [*row, label])) for row, label in zip(numbers, labels, strict=True)]
    (path / "t.csv").write_text("\n".join(["a,b,c,d,y", *lines]) + "\n")
    recipe = {"optimiser": "adamw", "epochs": 12, "batch": 16, "patience": 2}
    common: dict[str, Any] = {
        "data": {"name": "table", "path": str(path / "t.csv"), "target": "y"},
        "model": {"name": "mlp", "normalisation": "batch"},
        "activation": "relu",
        "width": [16],
    }
    rates = [0.1 if run % 3 else 1e-4 for run in range(RUNS)]
    recipes = [recipe | {"learning_rate": rate} for rate in rates]
    return Job.of([RunConfig(**common, seed=run, split=1 + run, training=own) for run, own in enumerate(recipes)])


@pytest.fixture
def noise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    monkeypatch.setenv("BOOLIT_DATA", str(tmp_path / "data"))
    return job(tmp_path)


def test_the_stack_shrinks_and_the_numbers_are_those_of_the_whole(noise: Job) -> None:
    whole, stack = StackedTraining(noise), ShrinkingStack(StackedTraining(noise))
    sizes = set()
    while not stack.done:
        stack.step()
        sizes.add(stack.active.job.runs)
    while not whole.done:
        whole.step()
    assert min(sizes) <= SHRINK_AT * RUNS
    for own, other in zip(outcomes(stack.whole()), outcomes(whole), strict=True):
        assert own.metrics["epochs"] == other.metrics["epochs"]
        assert {name: len(curve) for name, curve in own.history.items()} == {n: len(c) for n, c in other.history.items()}
        # The same sums in products of another shape: 12 epochs let roundings of 2⁻²⁴ grow, but not a thousandfold.
        assert own.metrics == pytest.approx(other.metrics, rel=1e-4, abs=1e-6)


def test_a_training_that_goes_on_is_bitwise_the_one_that_was_never_stopped(noise: Job, tmp_path: Path) -> None:
    """The stacks are the same by their rule, whenever the training was interrupted."""
    unbroken = train(noise)
    steps = noise.steps_per_epoch
    (tmp_path / "checkpoint").mkdir()
    finished: CohortResult | None = None
    for stop in (3 * steps, 6 * steps + 1, 9 * steps + 2, 10**9):
        finished = train(noise, Checkpoint(tmp_path / "checkpoint"), lambda training, stop=stop: training.steps < stop)
    assert unbroken is not None
    assert finished is not None
    for own, other in zip(finished.outcomes, unbroken.outcomes, strict=True):
        assert own.metrics == other.metrics
        assert own.history == other.history
        assert all(bool((own.weights[name] == other.weights[name]).all()) for name in own.weights)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40), st.integers(0, 9))
def test_every_run_that_learns_is_in_the_stack(stopped: list[int], epoch: int) -> None:
    rows = active_runs(torch.tensor(stopped), epoch).tolist()
    assert rows == sorted(set(rows))
    learning = {run for run, end in enumerate(stopped) if end > epoch}
    assert learning <= set(rows)
    assert len(rows) <= max(FEWEST, len(learning) / SHRINK_AT + 1)
    assert len(rows) >= min(FEWEST, len(stopped))
    assert set(rows) <= set(active_runs(torch.tensor(stopped), max(0, epoch - 1)).tolist())
