"""Time limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from boolit.lab.compare.config import CompareConfig
from boolit.lab.compare.job import CompareJob
from boolit.lab.compare.runs import Effort, fit_effort

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
    monkeypatch.setattr("boolit.lab.compare.runs.seconds_per_epoch", lambda *_: 0.01)
    job = CompareJob.prepare(config).limit(tmp_path)
    assert (len(job.splits), len(job.config.rates)) == (5, 3)
    assert "5 splits, 3 learning rates" in job.reductions[0]
    effort = Effort(5, job.config.rates, job.plan.study.training.epochs)
    assert job.seconds == pytest.approx(0.01 * effort.run_epochs)
    monkeypatch.setattr("boolit.lab.compare.runs.seconds_per_epoch", lambda *_: 1e-6)
    again = CompareJob.prepare(config).limit(tmp_path)
    assert again.config == job.config
    assert [run.key for run in again.plan.runs] == [run.key for run in job.plan.runs]
