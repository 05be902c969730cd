"""A cohort from its first step, or its last checkpoint, to its outcomes.

A run that has stopped early costs nothing more: the stack is rebuilt from the runs that still learn. Which runs are in it
follows from when each of them stopped, and from nothing else. So a training that is resumed from a checkpoint has the same
stacks, and the same numbers, as one that was never interrupted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

import boolit
from boolit.lab.runs import State
from boolit.lab.training import distributed
from boolit.lab.training.checkpoint import Checkpoint, state_tensors
from boolit.lab.training.job import Job
from boolit.lab.training.lr_finder import find_learning_rate
from boolit.lab.training.metrics import probe_metrics
from boolit.lab.training.single import SingleTraining
from boolit.lab.training.stacked import Position, StackedTraining
from boolit.lab.training.threads import Threads

SHRINK_AT = 0.75  # of the runs in the stack: it is rebuilt when no more of them learn
FEWEST = 8  # runs: a smaller stack is hardly faster
StepCallback = Callable[[StackedTraining], bool]


@dataclass(frozen=True)
class Outcome:
    """One run's state, final metrics, curves and weights (named as in the model, without the axis of runs).

    ``steps`` are the losses of all steps, of a network that was trained singly.
    """

    state: State
    metrics: dict[str, float]
    history: dict[str, list[float]]
    weights: dict[str, Tensor]
    steps: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class CohortResult:
    """The outcomes of a job's runs in its order, and the seconds they took, those before a restart included."""

    outcomes: list[Outcome]
    seconds: float


def train(
    job: Job, checkpoint: Checkpoint | None = None, callback: StepCallback | None = None, memory: int | None = None
) -> CohortResult | None:
    """Trains a job's runs, from their checkpoint if there is one; None if it was stopped.

    ``callback`` is called after every step and stops the training by returning False; the checkpoint is then up to date.
    """
    with Threads(job) as threads:
        started = time.monotonic()
        training, before = _start(job, checkpoint, memory)
        stack = ShrinkingStack(training) if training.early_stopping and not job.single_network else training
        while not stack.done:
            threads.run(stack.step)
            stop = not training.agree_to_continue(callback is None or callback(training))
            if checkpoint is not None and (stop or checkpoint.due_after(training.steps)):
                checkpoint.save(stack.whole(), before + time.monotonic() - started)
            if stop:
                return None
        return CohortResult(outcomes(stack.whole()), before + time.monotonic() - started)


def _start(job: Job, checkpoint: Checkpoint | None, memory: int | None) -> tuple[StackedTraining, float]:
    """The training, resumed or new, and the seconds it took before."""

    def new_training(rate: float) -> StackedTraining:
        update = {"learning_rate": rate} if job.recipe.learning_rate == "find" else {}
        own = replace(job, recipes=tuple(recipe.model_copy(update=update) for recipe in job.recipes))
        return SingleTraining(own) if job.single_network else StackedTraining(own)

    before = None
    if checkpoint is not None and checkpoint.exists():
        # It holds the rate that was found, so the search need not be repeated for it.
        training = new_training(1.0)
        before = checkpoint.restore(training)
    if before is None:
        # Processes that train together take the leader's rate.
        find = job.recipe.learning_rate == "find" and distributed.is_leader()
        training = new_training(find_learning_rate(job, memory) if find else 1.0)
    if distributed.size() > 1:  # every process continues from the leader's state, which alone has the checkpoint
        for values in state_tensors(training).values():
            distributed.broadcast(values)
        training.at = Position(*distributed.broadcast(torch.tensor(training.at)).tolist())
        if not training.done:
            training.begin_epoch()
    return training, before or 0.0


def outcomes(training: StackedTraining) -> list[Outcome]:
    """The outcome of every run, in the job's order: of its last epoch, or of its best one if runs are stopped early."""
    curves = {name: torch.stack(values, 1) for name, values in training.history.items()}
    training.finish()
    early, last = training.early_stopping, len(next(iter(training.history.values()))) - 1
    epochs = early.epoch.clamp(min=0) if early else torch.full((training.job.runs,), last)
    metrics = {name: values.gather(1, epochs.unsqueeze(1)).squeeze(1) for name, values in curves.items()}
    metrics |= probe_metrics(training.job, training.model) | {"learning_rate": training.hyper["learning_rate"]}
    if early:
        metrics["best_epoch"] = early.epoch + 1
    return [_outcome(training, run, metrics, curves) for run in range(training.job.runs)]


def _outcome(training: StackedTraining, run: int, metrics: dict[str, Tensor], curves: dict[str, Tensor]) -> Outcome:
    job, early, epochs = training.job, training.early_stopping, int(training.finite_epochs[run])
    epochs = min(epochs, int(early.trained[run])) if early else epochs
    alive = bool(training.alive[run])
    parameters = job.family.parameters(job.dataset.inputs, job.dataset.outputs, job.widths, boolit.activation(job.activation))
    own = {name: float(values[run]) if alive else float("nan") for name, values in metrics.items()}
    return Outcome(
        state="finished" if alive else "diverged",
        metrics=own | {"parameters": float(parameters), "epochs": float(epochs)},
        history={name: values[run, :epochs].tolist() for name, values in curves.items()},
        weights={name: values[run].to("cpu", copy=True) for name, values in training.model.state_dict().items()},
        steps=torch.stack(training.step_losses)[:, run].tolist() if training.step_losses else [],
    )


class ShrinkingStack:
    """A training of all runs, of which the ``active`` ones are stepped; `whole` copies their state back to all."""

    def __init__(self, training: StackedTraining) -> None:
        self._all, self.active = training, training
        self._rows = torch.arange(training.job.runs)
        self._shrink()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.active.done

    def step(self) -> None:
        """One step of the runs in the stack."""
        self.active.step()
        self._all.at = self.active.at
        if self.active.at.step == 0 and not self.active.done:
            self._shrink()

    def whole(self) -> StackedTraining:
        """The training of all runs, with the state of the active ones."""
        if self.active is self._all:
            return self._all
        for own, values in zip(state_tensors(self._all).values(), state_tensors(self.active).values(), strict=True):
            own[self._rows.to(own.device)] = values
        for name, curve in self._all.history.items():  # those of runs that left the stack have ended: the rest is never read
            for values in self.active.history[name][len(curve) :]:
                missing = torch.full((self._all.job.runs,), torch.nan, dtype=values.dtype)
                curve.append(missing.index_copy(0, self._rows, values))
        return self._all

    def _shrink(self) -> None:
        stops = _stop_epochs(self._all).index_copy(0, self._rows, _stop_epochs(self.active))
        rows = active_runs(stops, self._all.at.epoch)
        if len(rows) == self.active.job.runs:
            return
        whole = self.whole()
        training = StackedTraining(whole.job.subset(rows.tolist()))
        for own, values in zip(state_tensors(training).values(), state_tensors(whole).values(), strict=True):
            own.copy_(values[rows.to(values.device)])
        training.history = {name: [values[rows] for values in curve] for name, curve in whole.history.items()}
        training.at = whole.at
        training.begin_epoch()
        self.active, self._rows = training, rows


def _stop_epochs(training: StackedTraining) -> Tensor:
    """The first epoch each run had no part in.

    Shape: ``(runs,)``.
    """
    diverged = torch.where(training.alive, training.job.recipe.epochs, training.finite_epochs + 1)
    return torch.minimum(diverged, training.early_stopping.trained) if training.early_stopping else diverged


def active_runs(stops: Tensor, epoch: int) -> Tensor:
    """The runs in the stack in an epoch, given the first epoch each had no part in.

    Shape: ``(runs,)`` to ``(active runs,)``, ascending.

    Example:
        >>> stops = torch.tensor([3, 9] * 8)
        >>> active_runs(stops, 2).tolist() == list(range(16)), active_runs(stops, 3).tolist()
        (True, [1, 3, 5, 7, 9, 11, 13, 15])
    """
    rows = torch.arange(len(stops))
    for now in range(1, epoch + 1):
        learning = stops[rows] > now
        if len(rows) > FEWEST and int(learning.sum()) <= SHRINK_AT * len(rows):
            # Those that stopped fill a stack that would be too small; the sort is stable, so the first of them.
            order = torch.argsort(~learning, stable=True)
            rows = rows[order[: max(FEWEST, int(learning.sum()))]].sort().values
    return rows
