"""Time limits."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from boolit.lab.compare import RATES, CompareConfig
from boolit.lab.compare.job import CompareJob
from boolit.lab.compare.runs import limit_effort, run_epochs


@pytest.mark.parametrize("most", [1, 40, 400, 1000, 3000])
@pytest.mark.parametrize("given", [{}, {"epochs": 100}, {"splits": 10, "rates": (1e-3, 0.1, 0.2, 0.3)}])
def test_as_much_as_fits_and_no_less_than_a_comparison_needs(most: float, given: dict[str, Any]) -> None:
    config = replace(CompareConfig(Path("table.csv")), **given)
    limited = limit_effort(config, most, 10, 100)
    splits, rates, epochs = limited.splits or 10, limited.rates, limited.epochs or 100
    assert run_epochs(splits, len(rates), epochs) <= most or epochs == 3 or "epochs" in given
    assert splits in (5, 10)
    assert rates in (RATES, RATES[1::2], given.get("rates"))
    for name, value in given.items():
        assert getattr(limited, name) == value
    assert limit_effort(config, 1e9, 10, 100) == config


def test_minutes_are_decided_once(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = CompareConfig(folder / "rare.csv", "ill", activations=("relu",), budget=200, minutes=0.01)
    monkeypatch.setattr("boolit.lab.compare.runs.seconds_per_epoch", lambda *_: 0.01)
    job = CompareJob.prepare(config).limit(tmp_path)
    assert (len(job.splits), len(job.config.rates)) == (5, 3)
    assert "5 splits, 3 learning rates" in job.reductions[0]
    assert job.seconds == pytest.approx(0.01 * run_epochs(5, 3, job.plan.study.training.epochs))
    monkeypatch.setattr("boolit.lab.compare.runs.seconds_per_epoch", lambda *_: 1e-6)
    again = CompareJob.prepare(config).limit(tmp_path)
    assert again.config == job.config
    assert [run.key for run in again.plan.runs] == [run.key for run in job.plan.runs]
