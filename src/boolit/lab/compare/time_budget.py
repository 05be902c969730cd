"""A comparison that fits into a number of minutes: steps are timed, and splits, rates and epochs are reduced until it does.

The decision is kept in the output folder, so that the same command continues with the same runs, however fast the machine is
then. It decides how much is trained, never how results are compared.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from boolit.errors import user_input
from boolit.lab.compare.config import MIN_SPLITS
from boolit.lab.compare.rates import trial_epochs, trial_plan
from boolit.lab.studies import Plan
from boolit.lab.training import StackedTraining, train
from boolit.lab.training.threads import TRIED_STEPS

FILE = "budget.json"
MIN_RATES, MIN_EPOCHS = 3, 3
# Per activation; in the steps before, the networks are built and the number of threads is chosen.
WARM_UP, TIMED_STEPS, TIMED_SECONDS = 1 + 2 * TRIED_STEPS, 3, 0.5
EVALUATION = 1.2  # an epoch in units of its steps: evaluation is a forward pass, a third of a step, on about half the rows
PLANNED_SHARE = 0.8  # the rest is for the report and for slower steps in smaller stacks


@dataclass(frozen=True)
class Effort:
    """How much is trained of every activation."""

    splits: int
    rates: tuple[float, ...]
    epochs: int

    def run_epochs(self) -> int:
        """Epochs of all runs of an activation, trials and finals, if none stops early."""
        return self.splits * (len(self.rates) * trial_epochs(self.epochs) + self.epochs)


def fit_effort(wanted: Effort, seconds: float, cost: Callable[[Effort], float], fixed: Iterable[str] = ()) -> Effort:
    """As much of what is wanted as costs at most these seconds, or the minimum; what is ``fixed`` stays.

    First there are fewer splits, then fewer rates, then fewer epochs.

    Example:
        >>> fit_effort(Effort(10, (0.01, 0.1), 100), 900.0, lambda effort: effort.run_epochs())
        Effort(splits=5, rates=(0.01, 0.1), epochs=100)
    """
    free = {"splits", "rates", "epochs"} - set(fixed)
    effort = wanted
    if "splits" in free and cost(effort) > seconds:
        effort = replace(effort, splits=min(effort.splits, MIN_SPLITS))
    if "rates" in free and cost(effort) > seconds and len(effort.rates) > MIN_RATES:
        effort = replace(effort, rates=effort.rates[1::2][-MIN_RATES:])
    if "epochs" in free and cost(effort) > seconds:
        fewer = (replace(effort, epochs=epochs) for epochs in range(effort.epochs, MIN_EPOCHS - 1, -1))
        least = replace(effort, epochs=min(effort.epochs, MIN_EPOCHS))
        effort = next((each for each in fewer if cost(each) <= seconds), least)
    return effort


def time_epochs(planned: Plan, wanted: Effort) -> float:
    """The seconds of one epoch of one run per activation, summed, from a few steps of their trials."""
    trials = trial_plan(planned, range(1, wanted.splits + 1), wanted.rates)
    first = {cohort.runs[0].config.activation: cohort for cohort in reversed(trials.cohorts)}
    total = 0.0
    for cohort in first.values():
        job, times = cohort.job(), [time.monotonic()]

        def watch(training: StackedTraining, times: list[float] = times) -> bool:
            training.loss.cpu()  # waits until the device has made the step
            times.append(time.monotonic())
            return len(times) <= WARM_UP + TIMED_STEPS or times[-1] - times[WARM_UP] < TIMED_SECONDS

        train(job, None, watch)
        steps = times[WARM_UP:] if len(times) > WARM_UP + 1 else times
        total += (steps[-1] - steps[0]) / (len(steps) - 1) * job.steps_per_epoch * EVALUATION / job.runs
    return total


@dataclass(frozen=True)
class Budget:
    """What was decided for some minutes: the effort, its expected minutes, and what was wanted without a limit."""

    minutes: float
    effort: Effort
    expected: float
    wanted: Effort

    def notes(self) -> list[str]:
        """What was reduced, and whether that was enough."""
        new, old = self.effort, self.wanted
        reduced = [
            *([f"{new.splits} splits instead of {old.splits}"] if new.splits < old.splits else []),
            *([f"{len(new.rates)} learning rates instead of {len(old.rates)}"] if new.rates != old.rates else []),
            *([f"at most {new.epochs} epochs instead of {old.epochs}"] if new.epochs < old.epochs else []),
        ]
        asked = f"--minutes {self.minutes:g}"
        said = [f"To keep to {asked}: {', '.join(reduced)}"] if reduced else []
        if self.expected > self.minutes:
            said.append(f"{asked} is too short: about {self.expected:.1f} minutes are needed; fewer rows or activations help")
        return said


def plan_effort(minutes: float, planned: Plan, wanted: Effort, fixed: Iterable[str], out: Path, spent: float) -> Budget:
    """The budget that was decided for this folder before, or a new one after ``spent`` seconds."""
    question = {"minutes": minutes, "wanted": _entry(wanted), "runs": [run.key for run in planned.runs]}
    before = _read(out / FILE)
    if before is not None and before.get("question") == question:
        chosen = before["effort"]
        return Budget(minutes, Effort(chosen["splits"], tuple(chosen["rates"]), chosen["epochs"]), before["expected"], wanted)
    started = time.monotonic()
    epoch = time_epochs(planned, wanted)
    spent += time.monotonic() - started
    effort = fit_effort(wanted, PLANNED_SHARE * (60 * minutes - spent), lambda each: epoch * each.run_epochs(), fixed)
    expected = (spent + epoch * effort.run_epochs() / PLANNED_SHARE) / 60
    kept = {"question": question, "effort": _entry(effort), "expected": expected}
    with user_input():
        out.mkdir(parents=True, exist_ok=True)
        (out / FILE).write_text(json.dumps(kept, indent=1), encoding="utf-8")
    return Budget(minutes, effort, expected, wanted)


def _entry(effort: Effort) -> dict[str, Any]:
    return {**asdict(effort), "rates": list(effort.rates)}


def _read(path: Path) -> Mapping[str, Any] | None:
    """The content of the file; a damaged one is ignored."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
