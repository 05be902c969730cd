"""How long a comparison takes: timing of a few steps, reduction to a number of minutes, and the progress bar.

The decision for ``--minutes`` is kept in the results folder, so that the same command continues with the same runs. It decides
how much is trained, never how results are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.progress import ProgressColumn, Task, TimeElapsedColumn
from rich.text import Text

from boolit.lab.common.progress import progress_bars
from boolit.lab.compare.config import MIN_SPLITS
from boolit.lab.compare.runs import trial_epochs, trial_plan
from boolit.lab.execute.progress import StudyProgress
from boolit.lab.runs import job
from boolit.lab.studies import Plan
from boolit.lab.training import train

FILE = "budget.json"
MIN_RATES, MIN_EPOCHS = 3, 3
WARM_UP, TIMED_STEPS, TIMED_SECONDS = 3, 3, 0.5
EVALUATION = 1.2  # an epoch in units of its steps
STOPPED = 0.6  # share of the epochs that runs train before they are stopped, on average
PLANNED_SHARE = 0.8  # the rest is for baselines, report and slower steps in smaller stacks


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


def fit_effort(wanted: Effort, seconds: float, cost: Callable[[Effort], float], fixed: Collection[str] = ()) -> Effort:
    """Return as much of what is wanted as fits into some seconds: first fewer splits, then rates, then epochs.

    Example:
        >>> fit_effort(Effort(10, (0.01, 0.1), 100), 900.0, lambda effort: effort.run_epochs)
        Effort(splits=5, rates=(0.01, 0.1), epochs=100)
    """
    effort = wanted
    if "splits" not in fixed and cost(effort) > seconds:
        effort = replace(effort, splits=min(effort.splits, MIN_SPLITS))
    if "rates" not in fixed and cost(effort) > seconds and len(effort.rates) > MIN_RATES:
        effort = replace(effort, rates=effort.rates[1::2][-MIN_RATES:])
    if "epochs" not in fixed:
        while cost(effort) > seconds and effort.epochs > MIN_EPOCHS:
            effort = replace(effort, epochs=effort.epochs - 1)
    return effort


def time_epochs(planned: Plan, wanted: Effort) -> dict[str, float]:
    """Return the seconds of one epoch of one run by activation, from a few steps of the trials."""
    trials = trial_plan(planned, range(1, wanted.splits + 1), wanted.rates)
    first = {cohort.runs[0].activation: cohort for cohort in reversed(trials.cohorts)}
    seconds = {}
    for spec, cohort in first.items():
        work, times = job(cohort.runs), [time.monotonic()]

        def watch(training: Any, times: list[float] = times) -> bool:
            training.loss.cpu()  # waits for the device
            times.append(time.monotonic())
            return len(times) <= WARM_UP + TIMED_STEPS or times[-1] - times[WARM_UP] < TIMED_SECONDS

        train(work, callback=watch)
        steps = times[WARM_UP:] if len(times) > WARM_UP + 1 else times
        seconds[spec] = (steps[-1] - steps[0]) / (len(steps) - 1) * work.steps_per_epoch * EVALUATION / work.runs
    return seconds


@dataclass(frozen=True)
class Estimate:
    """The chosen effort, the effort without a limit, and the seconds of an epoch of a run by activation."""

    effort: Effort
    wanted: Effort
    seconds: Mapping[str, float]

    @property
    def expected(self) -> float:
        """Expected seconds of the training."""
        return self._cost(self.effort)

    def _cost(self, effort: Effort) -> float:
        return STOPPED * sum(self.seconds.values()) * effort.run_epochs / PLANNED_SHARE

    def notes(self, minutes: float | None) -> list[str]:
        """Say how long it takes and what was reduced."""
        new, old = self.effort, self.wanted
        reduced = [f"{new.splits} splits instead of {old.splits}"] if new.splits < old.splits else []
        reduced += [f"{len(new.rates)} learning rates instead of {len(old.rates)}"] if new.rates != old.rates else []
        reduced += [f"at most {new.epochs} epochs instead of {old.epochs}"] if new.epochs < old.epochs else []
        notes = [f"to keep to --minutes {minutes:g}: {', '.join(reduced)}"] if reduced else []
        if minutes is not None and self.expected > 60 * minutes:
            notes.append(f"--minutes {minutes:g} is too short; fewer rows or activations help")
        return notes


def estimate(
    planned: Plan, wanted: Effort, minutes: float | None, fixed: Collection[str], out: Path, spent: float = 0.0
) -> Estimate:
    """Time some steps and choose the effort, or return what was chosen for this folder before."""
    question = {"minutes": minutes, "wanted": asdict(wanted), "runs": [run.key for run in planned.runs]}
    question = json.loads(json.dumps(question))
    try:
        before = json.loads((out / FILE).read_text(encoding="utf-8"))
        if before["question"] == question:
            chosen = before["effort"]
            return Estimate(Effort(chosen["splits"], tuple(chosen["rates"]), chosen["epochs"]), wanted, before["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        pass  # there is none, or a damaged one
    started = time.monotonic()
    result = Estimate(wanted, wanted, time_epochs(planned, wanted))
    spent += time.monotonic() - started
    if minutes is not None:
        result = replace(result, effort=fit_effort(wanted, 60 * minutes - spent, result._cost, fixed))
    out.mkdir(parents=True, exist_ok=True)
    entries = {"question": question, "effort": asdict(result.effort), "seconds": result.seconds}
    (out / FILE).write_text(json.dumps(entries, indent=1), encoding="utf-8")
    return result


class CompareProgress(StudyProgress):
    """One bar for all phases of a comparison, in expected seconds.

    Args:
        seconds: expected seconds of every phase, by name, in order.
        costs: expected seconds of one epoch of one run, by activation.
        shown: False hides everything.
    """

    def __init__(self, seconds: Mapping[str, float], costs: Mapping[str, float], shown: bool | None = None) -> None:
        self._bars = progress_bars(_Left(), TimeElapsedColumn(), shown=shown)
        self._study = self._bars.add_task(next(iter(seconds)), total=sum(seconds.values()))
        self._seconds, self._costs, self._phase, self._spec = dict(seconds), costs, next(iter(seconds)), ""
        self._done, self._before = 0.0, 0.0

    def phase(self, name: str) -> None:
        """Start a phase; those before it are complete."""
        names = list(self._seconds)
        self._phase, self._before = name, sum(self._seconds[earlier] for earlier in names[: names.index(name)])
        self._done = 0.0
        self._bars.update(self._study, description=name, completed=self._before)

    def begin(self, cohort: str) -> None:
        self._spec = cohort.partition(",")[0]
        self._bars.update(self._study, description=f"{self._phase}: {self._spec}")

    def after_step(self, training: Any) -> None:
        if training.at.step == 0:
            share = training.at.epoch / training.job.recipe.epochs
            self._advance(self._done + self._share(training.job.runs) * min(1.0, share / STOPPED))

    def show_workers(self, workers: int, running: float) -> None:
        self._bars.update(self._study, description=f"{self._phase}: {workers} workers")
        self._advance(self._done + self._share(running))

    def finish(self, runs: int) -> None:
        self._done += self._share(runs)
        self._advance(self._done)

    def expect(self, runs: int) -> None:
        """Set the number of runs of the phase that are still to be trained."""
        self._runs = max(1, runs)

    def _share(self, runs: float) -> float:
        mean = sum(self._costs.values()) / max(1, len(self._costs))
        weight = self._costs.get(self._spec, mean) / mean if mean else 1.0
        return self._seconds[self._phase] * weight * runs / self._runs

    def _advance(self, done: float) -> None:
        self._bars.update(self._study, completed=self._before + min(done, self._seconds[self._phase]))


class _Left(ProgressColumn):
    """Remaining time from the average speed since the start."""

    def render(self, task: Task) -> Text:
        if not task.elapsed or not task.completed or not task.total:
            return Text("")
        left = task.elapsed * (task.total - task.completed) / task.completed
        return Text(f"about {left / 60:.0f} min left" if left > 90 else f"about {left:.0f} s left")
