"""Stepping a stacked training with those of its runs that still learn: a run that has stopped early costs nothing more.

Which runs are in the stack follows from when each of them stopped, and from nothing else. So a training that goes on from a
checkpoint has the same stacks, and the same numbers, as one that was never interrupted.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from boolit.lab.training.checkpoint import live
from boolit.lab.training.job import Job
from boolit.lab.training.stacked import StackedTraining

SHRUNK = 0.75  # of the runs in the stack: it is built anew when no more of them learn
FEWEST = 8  # runs: a smaller stack is hardly faster


class Compacted:
    """A training of all runs, of which ``present`` ones are stepped; `settle` brings the others up to date with them."""

    def __init__(self, whole: StackedTraining) -> None:
        self.whole, self.present = whole, whole
        self._rows = torch.arange(whole.job.runs)
        self._shrink()

    @property
    def done(self) -> bool:
        """Whether nothing is left to do."""
        return self.present.done

    def step(self) -> None:
        """One step of the runs in the stack."""
        self.present.step()
        self.whole.at = self.present.at
        if self.present.at.step == 0 and not self.present.done:
            self._shrink()

    def settle(self) -> StackedTraining:
        """The training of all runs, with what the present ones have become."""
        if self.present is not self.whole:
            for own, values in zip(live(self.whole).values(), live(self.present).values(), strict=True):
                own[self._rows] = values
            self._settle_history()
        return self.whole

    def _settle_history(self) -> None:
        """The curves of runs that left the stack have ended; what follows of them is never read."""
        for name, own in self.whole.history.items():
            for values in self.present.history[name][len(own) :]:
                own.append(torch.full((self.whole.job.runs,), torch.nan, dtype=values.dtype).index_copy(0, self._rows, values))

    def _shrink(self) -> None:
        at = self.whole.at
        rows = present_runs(self._stopped(), at.epoch)
        if len(rows) == self.present.job.runs:
            return
        whole = self.settle()
        training = StackedTraining(_part(whole.job, rows), whole.device)
        for own, values in zip(live(training).values(), live(whole).values(), strict=True):
            own.copy_(values[rows])
        training.history = {name: [values[rows] for values in curve] for name, curve in whole.history.items()}
        training.at = at
        training.begin_epoch()
        self.present, self._rows = training, rows

    def _stopped(self) -> Tensor:
        """The first epoch each run had no part in.

        Shape: ``(runs,)``.
        """
        return _stopped(self.whole).index_copy(0, self._rows, _stopped(self.present))


def _stopped(training: StackedTraining) -> Tensor:
    epochs = training.job.recipe.epochs
    diverged = torch.where(training.alive, epochs, training.lived + 1)
    return torch.minimum(diverged, training.best.trained) if training.best else diverged


def present_runs(stopped: Tensor, epoch: int) -> Tensor:
    """The runs in the stack in an epoch, given the first epoch each had no part in.

    Shape: ``(runs,)`` to ``(present runs,)``, ascending.

    Example:
        >>> stopped = torch.tensor([3, 9] * 8)
        >>> present_runs(stopped, 2).tolist() == list(range(16)), present_runs(stopped, 3).tolist()
        (True, [1, 3, 5, 7, 9, 11, 13, 15])
    """
    rows = torch.arange(len(stopped))
    for now in range(1, epoch + 1):
        learning = stopped[rows] > now
        if len(rows) > FEWEST and int(learning.sum()) <= SHRUNK * len(rows):
            # Those that stopped fill a stack that would be too small; the sort is stable, so the first of them.
            order = torch.argsort(~learning, stable=True)
            rows = rows[order[: max(FEWEST, int(learning.sum()))]].sort().values
    return rows


def _part(job: Job, rows: Tensor) -> Job:
    chosen = rows.tolist()
    return replace(
        job,
        recipes=tuple(job.recipes[row] for row in chosen),
        seeds=tuple(job.seeds[row] for row in chosen),
        resamples=tuple(job.resamples[row] for row in chosen) if job.resamples else (),
    )
