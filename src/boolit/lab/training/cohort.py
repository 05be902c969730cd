"""A cohort from its first step, or its last checkpoint, to its outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType

import torch
from rich.console import Console
from rich.progress import MofNCompleteColumn, TaskID, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor

import boolit
from boolit.lab.common.progress import progress_bars
from boolit.lab.runs import State
from boolit.lab.training import distributed
from boolit.lab.training.checkpoint import Checkpoint, live
from boolit.lab.training.compaction import Compacted
from boolit.lab.training.devices import Threads
from boolit.lab.training.job import Job
from boolit.lab.training.lr_finder import find_learning_rate
from boolit.lab.training.metrics import probed
from boolit.lab.training.single import SingleTraining
from boolit.lab.training.stacked import Position, StackedTraining

# Showing how far a study is: cohorts, epochs and the time left.


class StudyProgress(AbstractContextManager["StudyProgress"]):
    """Two bars on the error stream: all cohorts, weighed by their runs, and the epochs of the present one.

    A line now and then where the stream is no terminal; nothing if ``shown`` is False.
    """

    def __init__(self, total_runs: int, shown: bool | None = None, console: Console | None = None) -> None:
        self._bars = progress_bars(
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            shown=shown,
            console=console,
        )
        self._study = self._bars.add_task("runs", total=total_runs)
        self._cohort: TaskID = self._bars.add_task("epochs", total=None)
        self._before = 0.0

    def __enter__(self) -> StudyProgress:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def note(self, line: str) -> None:
        """Prints a line on the error stream, above the bars if they are shown."""
        self._bars.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def begin(self, name: str) -> None:
        """A cohort starts."""
        self._bars.reset(self._cohort, description=name, total=None)

    def after_step(self, training: StackedTraining) -> None:
        """A step of the present cohort was made."""
        if training.at.step:
            return
        epochs = training.job.recipe.epochs
        self._bars.update(self._cohort, completed=training.at.epoch, total=epochs)
        self._bars.update(self._study, completed=self._before + training.job.runs * training.at.epoch / epochs)

    def finish(self, runs: int) -> None:
        """Runs of the study are done, trained now or earlier."""
        self._before += runs
        self._bars.update(self._study, completed=self._before)


# What a finished cohort leaves of each of its runs.


@dataclass(frozen=True)
class Outcome:
    """One run's state, final figures, curves and weights (named as in the model, without the axis of runs).

    ``steps`` are the losses of all steps, of a network that was trained alone.
    """

    state: State
    metrics: dict[str, float]
    history: dict[str, list[float]]
    weights: dict[str, Tensor]
    steps: list[float] = field(default_factory=list)


def outcomes(training: StackedTraining) -> list[Outcome]:
    """The outcome of every run, in the job's order."""
    curves = {name: torch.stack(values, 1) for name, values in training.history.items()}
    training.conclude()
    figures = {name: values.gather(1, _reported(training)).squeeze(1) for name, values in curves.items()}
    figures |= probed(training.job, training.model) | {"learning_rate": training.hyper["learning_rate"]}
    if training.best:
        figures["best_epoch"] = training.best.epoch + 1
    return [_outcome(training, run, figures, curves) for run in range(training.job.runs)]


def _reported(training: StackedTraining) -> Tensor:
    """The epoch whose figures are each run's own: its last, or its best if runs are stopped early.

    Shape: ``(runs, 1)``.
    """
    last = len(next(iter(training.history.values()))) - 1
    epochs = training.best.epoch.clamp(min=0) if training.best else torch.full((training.job.runs,), last)
    return epochs.unsqueeze(1)


def _outcome(training: StackedTraining, run: int, figures: dict[str, Tensor], curves: dict[str, Tensor]) -> Outcome:
    job, lived = training.job, int(training.lived[run])
    lived = min(lived, int(training.best.trained[run])) if training.best else lived
    alive = bool(training.alive[run])
    parameters = job.family.parameters(job.dataset.inputs, job.dataset.outputs, job.widths, boolit.activation(job.activation))
    metrics = {name: float(values[run]) if alive else float("nan") for name, values in figures.items()}
    return Outcome(
        state="finished" if alive else "diverged",
        metrics=metrics | {"parameters": float(parameters), "epochs": float(lived)},
        history={name: values[run, :lived].tolist() for name, values in curves.items()},
        weights={name: values[run].to("cpu", copy=True) for name, values in training.model.state_dict().items()},
        steps=[float(loss[run]) for loss in training.step_losses],
    )


Watch = Callable[[StackedTraining], bool]


@dataclass(frozen=True)
class Finished:
    """The outcomes of a job's runs in its order, and the seconds they took, those before a restart included."""

    outcomes: list[Outcome]
    seconds: float


def go_on(_: StackedTraining) -> bool:
    """The watch that never stops a training."""
    return True


def train(job: Job, checkpoint: Checkpoint | None = None, watch: Watch = go_on, memory: int | None = None) -> Finished | None:
    """Trains a job's runs, from their checkpoint if there is one; None if it was stopped.

    ``watch`` is called after every step and stops the training by returning False; the checkpoint is then up to date.
    """
    with Threads(job) as threads:
        started = time.monotonic()
        training, before = _started(job, checkpoint, memory)
        stack = Compacted(training) if training.best and not job.alone else training
        while not stack.done:
            threads.make(stack.step)
            going = training.agreed(watch(training))
            if checkpoint is not None and (checkpoint.due_after(training.steps) or not going):
                checkpoint.save(_settled(stack), before + time.monotonic() - started)
            if not going:
                return None
        return Finished(outcomes(_settled(stack)), before + time.monotonic() - started)


def _settled(stack: Compacted | StackedTraining) -> StackedTraining:
    return stack.settle() if isinstance(stack, Compacted) else stack


def _started(job: Job, checkpoint: Checkpoint | None, memory: int | None) -> tuple[StackedTraining, float]:
    before = None
    if checkpoint is not None and checkpoint.exists():
        # It holds the rate that was found, so the search need not be repeated for it.
        training = _fresh(_at_rate(job, 1.0))
        before = checkpoint.restore(training)
    if before is None:
        # Processes that train together take the leader's rate.
        sought = job.recipe.learning_rate == "find" and distributed.leading()
        training = _fresh(_at_rate(job, find_learning_rate(job, memory) if sought else 1.0))
    if distributed.size() > 1:
        _follow_leader(training)
    return training, before or 0.0


def _fresh(job: Job) -> StackedTraining:
    return SingleTraining(job) if job.alone else StackedTraining(job)


def _at_rate(job: Job, rate: float) -> Job:
    """The job with this rate where it is to be found."""
    if job.recipe.learning_rate != "find":
        return job
    return replace(job, recipes=tuple(recipe.model_copy(update={"learning_rate": rate}) for recipe in job.recipes))


def _follow_leader(training: StackedTraining) -> None:
    """Every process goes on from where the leader is, which alone has the checkpoint."""
    for values in live(training).values():
        distributed.shared(values)
    training.at = Position(*distributed.shared(torch.tensor(training.at)).tolist())
    if not training.done:
        training.begin_epoch()
