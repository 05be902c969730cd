"""How long a comparison takes: timing of a few steps, reduction to a number of minutes, and the progress bar.

The decision for ``--minutes`` is kept in the results folder, so that the same command continues with the same runs. It decides
how much is trained, never how results are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.progress import TimeElapsedColumn, TimeRemainingColumn

from boolit.lab.common.progress import progress_bars
from boolit.lab.compare.config import MIN_SPLITS
from boolit.lab.compare.runs import trial_epochs, trial_plan
from boolit.lab.execute.local import StudyProgress
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

    def seconds(self, per_epoch: float) -> float:
        """Return the expected duration, given the seconds of one epoch of one run of every activation together."""
        return STOPPED * per_epoch * self.run_epochs / PLANNED_SHARE


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
    while "epochs" not in fixed and cost(effort) > seconds and effort.epochs > MIN_EPOCHS:
        effort = replace(effort, epochs=effort.epochs - 1)
    return effort


def choose_effort(
    planned: Plan, wanted: Effort, minutes: float | None, fixed: Collection[str], out: Path
) -> tuple[Effort, float]:
    """Return the effort and its expected seconds: those of the same command before, or from a few timed steps."""
    question = json.loads(json.dumps([minutes, asdict(wanted), [run.key for run in planned.runs]]))
    with suppress(OSError, ValueError, KeyError, TypeError):  # there is none, or a damaged one
        before = json.loads((out / FILE).read_text(encoding="utf-8"))
        if before["question"] == question:
            return Effort(before["splits"], tuple(before["rates"]), before["epochs"]), before["seconds"]
    per_epoch = _time_epoch(planned, wanted)
    effort = fit_effort(wanted, 60 * minutes, lambda each: each.seconds(per_epoch), fixed) if minutes else wanted
    out.mkdir(parents=True, exist_ok=True)
    entries = {"question": question, **asdict(effort), "seconds": effort.seconds(per_epoch)}
    (out / FILE).write_text(json.dumps(entries, indent=1), encoding="utf-8")
    return effort, effort.seconds(per_epoch)


def _time_epoch(planned: Plan, wanted: Effort) -> float:
    """Return the seconds of one epoch of one run of every activation together, from a few steps of their trials."""
    trials = trial_plan(planned, range(1, wanted.splits + 1), wanted.rates)
    first = {cohort.runs[0].activation: cohort for cohort in reversed(trials.cohorts)}
    total = 0.0
    for cohort in first.values():
        work, times = job(cohort.runs), [time.monotonic()]

        def watch(training: Any, times: list[float] = times) -> bool:
            training.loss.cpu()  # waits for the device
            times.append(time.monotonic())
            return len(times) <= WARM_UP + TIMED_STEPS or times[-1] - times[WARM_UP] < TIMED_SECONDS

        train(work, callback=watch)
        steps = times[WARM_UP:] if len(times) > WARM_UP + 1 else times
        total += (steps[-1] - steps[0]) / (len(steps) - 1) * work.steps_per_epoch * EVALUATION / work.runs
    return total


def describe_effort(effort: Effort, wanted: Effort, minutes: float | None, seconds: float) -> list[str]:
    """Say what was reduced for ``--minutes``, and whether it is enough."""
    reduced = [f"{effort.splits} splits instead of {wanted.splits}"] if effort.splits < wanted.splits else []
    reduced += [f"{len(effort.rates)} learning rates instead of {len(wanted.rates)}"] if effort.rates != wanted.rates else []
    reduced += [f"at most {effort.epochs} epochs instead of {wanted.epochs}"] if effort.epochs < wanted.epochs else []
    notes = [f"to keep to --minutes {minutes:g}: {', '.join(reduced)}"] if reduced else []
    if minutes is not None and seconds > 60 * minutes:
        notes.append(f"--minutes {minutes:g} is too short; fewer rows or activations help")
    return notes


class CompareProgress(StudyProgress):
    """One bar for all phases of a comparison.

    Args:
        work: the share of every phase in the whole work, by name, in order.
        shown: False hides everything.
    """

    def __init__(self, work: Mapping[str, float], shown: bool | None = None) -> None:
        # The remaining time follows from the average speed since the start.
        self._bars = progress_bars(TimeElapsedColumn(), TimeRemainingColumn(), shown=shown, speed_estimate_period=1e6)
        self._work, self._done, self._before = dict(work), 0.0, 0.0
        self._task = self._bars.add_task("", total=sum(work.values()))

    def __enter__(self) -> CompareProgress:
        super().__enter__()
        return self

    def phase(self, name: str, runs: int = 1) -> None:
        """Start a phase with a number of runs to train; the phases before it are complete."""
        names = list(self._work)
        self._phase, self._runs, self._done = name, max(1, runs), 0.0
        self._before = sum(self._work[earlier] for earlier in names[: names.index(name)])
        self._show(0.0, name)

    def begin(self, cohort: str) -> None:
        self._show(0.0, f"{self._phase}: {cohort.partition(',')[0]}")

    def after_step(self, training: Any) -> None:
        if training.at.step == 0:
            self._show(training.job.runs * min(1.0, training.at.epoch / training.job.recipe.epochs / STOPPED))

    def show_workers(self, workers: int, running: float) -> None:
        self._show(running, f"{self._phase}: {workers} workers")

    def finish(self, runs: int) -> None:
        self._done += runs
        self._show(0.0)

    def _show(self, running: float, text: str | None = None) -> None:
        share = min(1.0, (self._done + running) / self._runs)
        self._bars.update(self._task, completed=self._before + share * self._work[self._phase], description=text)
