"""A comparison within some minutes: what is taken off for it, in which order, and that it is said. No test looks at a clock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from boolit.cli._app import application
from boolit.errors import UserError
from boolit.lab.compare import time_budget as budget
from boolit.lab.compare.config import RATES, CompareConfig
from boolit.lab.compare.job import CompareJob
from boolit.lab.compare.time_budget import Budget, Effort, fit_effort

WANTED = Effort(10, RATES, 100)


def cost(effort: Effort) -> float:
    return float(effort.run_epochs())


@pytest.mark.parametrize(
    ("seconds", "effort"),
    [
        (cost(WANTED), WANTED),
        (cost(WANTED) - 1, Effort(5, RATES, 100)),
        (cost(WANTED) / 2 - 1, Effort(5, (3e-3, 3e-2, 3e-1), 100)),
        (5 * (3 * 12 + 50), Effort(5, (3e-3, 3e-2, 3e-1), 50)),
        (0.0, Effort(5, (3e-3, 3e-2, 3e-1), 3)),
    ],
)
def test_splits_go_first_then_rates_then_epochs(seconds: float, effort: Effort) -> None:
    assert fit_effort(WANTED, seconds, cost) == effort


def test_an_epoch_more_would_be_too_much() -> None:
    for seconds in range(100, 3000, 173):
        found = fit_effort(WANTED, seconds, cost)
        assert cost(found) <= seconds
        if 3 < found.epochs < 100:
            assert cost(Effort(found.splits, found.rates, found.epochs + 1)) > seconds


def test_what_was_asked_for_stays() -> None:
    assert fit_effort(WANTED, 0.0, cost, ["splits", "rates", "epochs"]) == WANTED
    assert fit_effort(WANTED, 0.0, cost, ["splits", "epochs"]) == Effort(10, (3e-3, 3e-2, 3e-1), 100)


def test_it_is_said_what_is_missing_and_whether_it_is_enough() -> None:
    assert Budget(60, WANTED, 5.0, WANTED).notes() == []
    assert Budget(2, Effort(5, RATES[:3], 8), 3.25, WANTED).notes() == [
        "To keep to --minutes 2: 5 splits instead of 10, 3 learning rates instead of 6, at most 8 epochs instead of 100",
        "--minutes 2 is too short: about 3.2 minutes are needed; fewer rows or activations help",
    ]


def test_the_same_command_goes_on_with_the_same_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine's speed is by then."""
    arguments = ["compare", str(folder / "classes.csv"), "-t", "class", "-a", "relu,max", "--budget", "200", "--epochs", "2"]
    arguments += ["--minutes", "5", "--out", str(tmp_path / "out"), "--json"]
    found = []
    for seconds in (10.0, 1e-6):  # an epoch: far too slow for ten splits, and then not
        monkeypatch.setattr(budget, "time_epochs", lambda *_, seconds=seconds: seconds)
        result = CliRunner().invoke(application(), arguments, catch_exceptions=False)
        assert result.exit_code == 0, result.output
        found.append(json.loads(result.stdout))
    assert found[0]["splits"]["number"] == found[1]["splits"]["number"] == 5
    assert found[0]["summary"]["trained"] == 2 * (5 * 3 + 5)
    assert found[1]["summary"]["trained"] == 0
    assert found[0]["notes"][0].startswith("To keep to --minutes 5: 5 splits instead of 10, 3 learning rates instead of 6")
    assert found[0]["notes"] == found[1]["notes"]


@pytest.mark.parametrize("text", ["{", "[]", "", "1"])
def test_a_damaged_budget_is_decided_anew(text: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CompareJob.prepare(CompareConfig(folder / "classes.csv", "class", activations=("relu",), budget=200))
    (tmp_path / budget.FILE).write_text(text)
    monkeypatch.setattr(budget, "time_epochs", lambda *_: 1e-6)
    assert job.fit_minutes(5, tmp_path).config == job.config
    assert json.loads((tmp_path / budget.FILE).read_text())["effort"]["splits"] == 10


def test_steps_are_timed_without_leaving_a_trace(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = CompareJob.prepare(CompareConfig(folder / "classes.csv", "class", activations=("relu", "max"), budget=200, epochs=2))
    monkeypatch.chdir(tmp_path)
    assert budget.time_epochs(job.plan, Effort(5, (0.01,), 2)) > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan"), float("inf")])
def test_no_time_is_refused(minutes: float, folder: Path) -> None:
    with pytest.raises(UserError, match="is no time to plan by; give a number above 0"):
        CompareJob.prepare(CompareConfig(folder / "classes.csv", "class", minutes=minutes))
