"""How long a comparison takes: an estimate from a few steps, the reduction to ``--minutes``, and the progress bar."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from rich.progress import TimeElapsedColumn, TimeRemainingColumn

from boolit.lab.common.progress import progress_bars
from boolit.lab.compare.config import MIN_SPLITS
from boolit.lab.compare.runs import trial_epochs, trial_plan
from boolit.lab.execute.local import StudyProgress
from boolit.lab.runs import RunConfig, job
from boolit.lab.studies import Plan
from boolit.lab.training import train

FILE = "budget.json"
MIN_RATES, MIN_EPOCHS = 3, 3
TIMED_STEPS, TIMED_SECONDS = 5, 0.5
STOPPED = 0.6  # share of the epochs that runs train before they are stopped, on average


@dataclass(frozen=True)
class Effort:
    """How much is trained of every activation."""

    splits: int
    rates: tuple[float, ...]
    epochs: int

    @property
    def run_epochs(self) -> int:
        """Epochs of all runs of an activation, if none stops early."""
        return self.splits * (len(self.rates) * trial_epochs(self.epochs) + self.epochs)


def fit_effort(wanted: Effort, run_epochs: float, fixed: Collection[str] = ()) -> Effort:
    """Return as much of an effort as has at most so many epochs: first fewer splits, then rates, then epochs.

    Example:
        >>> fit_effort(Effort(10, (0.01, 0.1), 100), 900)
        Effort(splits=5, rates=(0.01, 0.1), epochs=100)
    """
    effort = wanted
    if "splits" not in fixed and effort.run_epochs > run_epochs:
        effort = replace(effort, splits=min(effort.splits, MIN_SPLITS))
    if "rates" not in fixed and effort.run_epochs > run_epochs and len(effort.rates) > MIN_RATES:
        effort = replace(effort, rates=effort.rates[1::2][-MIN_RATES:])
    while "epochs" not in fixed and effort.run_epochs > run_epochs and effort.epochs > MIN_EPOCHS:
        effort = replace(effort, epochs=effort.epochs - 1)
    return effort


def limit_effort(wanted: Effort, minutes: float, per_epoch: float, fixed: Collection[str], out: Path) -> Effort:
    """Return the effort for ``--minutes``. It is kept in the results folder, so that the same command resumes."""
    question = [minutes, wanted.splits, [*wanted.rates], wanted.epochs]
    with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or a damaged one
        before = json.loads((out / FILE).read_text(encoding="utf-8"))
        if before["question"] == question:
            return Effort(before["splits"], tuple(before["rates"]), before["epochs"])
    effort = fit_effort(wanted, 60 * minutes / per_epoch, fixed)
    out.mkdir(parents=True, exist_ok=True)
    (out / FILE).write_text(json.dumps({"question": question, **asdict(effort)}), encoding="utf-8")
    return effort


def seconds_per_epoch(planned: Plan, wanted: Effort) -> float:
    """Return about how long one epoch of one run of every activation takes, from a few training steps of each.

    Validation, baselines and the report come on top of the steps, but runs that stop early save about as much.
    """
    trials = trial_plan(planned, range(1, wanted.splits + 1), wanted.rates)
    return sum(_time_epoch(cohort.runs) for cohort in {each.runs[0].activation: each for each in trials.cohorts}.values())


def _time_epoch(runs: Sequence[RunConfig]) -> float:
    work, times = job(runs), [time.monotonic()]

    def watch(training: Any) -> bool:
        training.loss.cpu()  # waits for the device
        times.append(time.monotonic())
        return len(times) <= TIMED_STEPS or times[-1] - times[0] < TIMED_SECONDS

    train(work, callback=watch)
    return median(after - before for before, after in pairwise(times)) * work.steps_per_epoch / work.runs


class CompareProgress(StudyProgress):
    """One bar for all phases of a comparison, in epochs of its runs.

    Args:
        epochs: epochs of all runs in all phases.
        shown: False hides everything.
    """

    def __init__(self, epochs: float, shown: bool | None = None) -> None:
        # The remaining time follows from the average speed since the start.
        options: dict[str, Any] = {"shown": shown, "unit": (epochs / 100, " %"), "speed_estimate_period": 1e6}
        self._bars = progress_bars(TimeElapsedColumn(), TimeRemainingColumn(), **options)
        self._study, self._done = self._bars.add_task("", total=epochs), 0.0

    def phase(self, name: str, epochs: int, finished: int = 0) -> None:
        """Start a phase whose runs have so many epochs; so many of them are finished already."""
        self._phase, self._epochs = name, epochs
        self._bars.update(self._study, description=name)
        self.finish(finished)

    def begin(self, cohort: str) -> None:
        """Show the activation of a cohort."""
        self._bars.update(self._study, description=f"{self._phase}: {cohort.partition(',')[0]}")

    def after_step(self, training: Any) -> None:
        """Update the bar at the end of an epoch."""
        if training.at.step == 0:
            epochs = min(training.job.recipe.epochs, training.at.epoch / STOPPED)
            self._bars.update(self._study, completed=self._done + training.job.runs * epochs)

    def show_workers(self, workers: int, running: float) -> None:
        """Show the number of workers, and how many runs their cohorts amount to so far."""
        super().show_workers(workers, running * self._epochs)

    def finish(self, runs: int) -> None:
        """Count the runs of a cohort as done."""
        super().finish(runs * self._epochs)
