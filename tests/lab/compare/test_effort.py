"""Time limits and the progress bar."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from boolit.lab.compare.config import CompareConfig
from boolit.lab.compare.effort import CompareProgress, Effort, fit_effort
from boolit.lab.compare.job import CompareJob

WANTED = Effort(10, (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1), 100)


@pytest.mark.parametrize("epochs", [1, 40, 400, 1000, 3000])
@pytest.mark.parametrize("fixed", [(), ("epochs",), ("splits", "rates")])
def test_as_much_as_fits_and_no_less_than_a_comparison_needs(epochs: float, fixed: tuple[str, ...]) -> None:
    effort = fit_effort(WANTED, epochs, fixed)
    assert effort.run_epochs <= epochs or effort.epochs == 3 or "epochs" in fixed
    assert effort.splits in (5, 10)
    assert len(effort.rates) in (3, 6)
    for name in fixed:
        assert getattr(effort, name) == getattr(WANTED, name)
    assert fit_effort(WANTED, 1e9) == WANTED


def test_minutes_are_decided_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CompareConfig(folder / "rare.csv", "ill", activations=("relu",), budget=200, minutes=0.01)
    monkeypatch.setattr("boolit.lab.compare.job.seconds_per_epoch", lambda *_: 0.01)
    job = CompareJob.prepare(config).limit(tmp_path)
    assert (len(job.splits), len(job.config.rates)) == (5, 3)
    assert "5 splits instead of 10, 3 learning rates instead of 6" in job.reductions[0]
    assert job.seconds == pytest.approx(0.01 * job.effort.run_epochs)
    monkeypatch.setattr("boolit.lab.compare.job.seconds_per_epoch", lambda *_: 1e-6)
    again = CompareJob.prepare(config).limit(tmp_path)
    assert again.config == job.config
    assert [run.key for run in again.plan.runs] == [run.key for run in job.plan.runs]


def test_the_bar_is_proportional_to_the_work() -> None:
    bars = CompareProgress(epochs=20 * 10 + 10 * 40, shown=False)

    def completed() -> float:
        return bars._bars.tasks[0].completed

    bars.phase("rates", epochs=10, finished=5)
    bars.begin("relu, 100 parameters, 10 runs")
    at = SimpleNamespace(epoch=3, step=0)
    bars.after_step(SimpleNamespace(at=at, job=SimpleNamespace(runs=15, recipe=SimpleNamespace(epochs=10))))
    assert completed() == pytest.approx(5 * 10 + 15 * 5)  # runs stop after 0.6 of their epochs
    bars.finish(15)
    assert completed() == pytest.approx(200)
    bars.phase("training", epochs=40)
    bars.finish(10)
    assert completed() == pytest.approx(600)
