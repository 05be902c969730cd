"""A cohort from its first step, or its last checkpoint, to its outcomes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from boolit.lab.training import distributed
from boolit.lab.training.checkpoint import Checkpoint, live
from boolit.lab.training.compaction import Compacted
from boolit.lab.training.job import Job
from boolit.lab.training.lr_finder import find_learning_rate
from boolit.lab.training.outcome import Outcome, outcomes
from boolit.lab.training.single import SingleTraining
from boolit.lab.training.stacked import Position, StackedTraining
from boolit.lab.training.threads import Threads

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
