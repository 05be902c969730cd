"""Runs with rows of their own: which samples each trains and is assessed on, standardised by its own training rows.

The samples are stored once, and gathered and standardised a block at a time: so runs on many splits are one stacked training.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from boolit.lab.models import Stacked
from boolit.lab.training.job import Job
from boolit.lab.training.metrics import EVALUATION_NUMEL, losses, mean_of_run, scores

CACHED_NUMEL = 2**22  # of the samples of all runs that are gathered once for all epochs: 16 MiB


class OwnRows:
    """The rows of a job's resamples."""

    def __init__(self, job: Job) -> None:
        assert job.dataset.pool is not None
        self._job, self._pool = job, job.dataset.pool
        self._regress = job.dataset.task == "regression"
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}

    @cached_property
    def _rows(self) -> dict[str, Tensor]:
        """Shape: ``(runs, rows of the split)`` each."""
        resamples = self._job.resamples
        return {name: torch.stack([own.rows[name] for own in resamples]) for name in ("train", *self._job.eval_splits)}

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Shape: ``(runs, 1, features)`` twice."""
        mean, scale = (torch.stack([getattr(own, name) for own in self._job.resamples]) for name in ("mean", "scale"))
        return mean.unsqueeze(1), scale.unsqueeze(1)

    @cached_property
    def _target_moments(self) -> tuple[Tensor, Tensor]:
        """Shape: ``(runs, 1, 1)`` twice."""
        names = ("target_mean", "target_scale")
        mean, scale = (torch.tensor([getattr(own, name) for own in self._job.resamples]).view(-1, 1, 1) for name in names)
        return mean, scale

    def take(self, split: str, places: Tensor) -> tuple[Tensor, Tensor]:
        """The samples at some places of each run's own split, and their targets.

        Shape: ``(runs, samples)`` to ``(runs, samples, features)`` and the targets'.
        """
        rows = self._rows[split].gather(1, places)
        x, y = (
            values.index_select(0, rows.flatten()).view(*rows.shape, *values.shape[1:])
            for values in (self._pool.x, self._pool.y)
        )
        mean, scale = self._moments
        x = x.sub_(mean).div_(scale)
        if self._regress:
            mean, scale = self._target_moments
            y = y.sub_(mean).div_(scale)
        return x, y

    def evaluate(self, model: Stacked, split: str) -> Tensor:
        """The mean loss and the mean score of every run on its own rows of a split.

        Shape: ``(2, runs)``.
        """
        job, samples = self._job, self._rows[split].shape[1]
        size = max(1, EVALUATION_NUMEL // (job.runs * job.widest))
        sums = torch.zeros(2, job.runs, dtype=torch.float64)
        model.eval()
        with torch.no_grad():
            for first in range(0, samples, size):
                x, y = self._piece(split, first, min(first + size, samples))
                outputs = model(x)
                values = losses(job.loss, outputs, y), scores(job.dataset.task, outputs, y)
                sums += torch.stack([mean_of_run(value) for value in values]) * x.shape[1]
        return sums / samples

    def _piece(self, split: str, first: int, last: int) -> tuple[Tensor, Tensor]:
        whole = self._rows[split].shape[1]
        if split not in self._kept and self._job.runs * whole * self._pool.x.shape[1] <= CACHED_NUMEL:
            self._kept[split] = self._gather_rows(split, 0, whole)
        if split not in self._kept:
            return self._gather_rows(split, first, last)
        x, y = self._kept[split]
        return x[:, first:last], y[:, first:last]

    def _gather_rows(self, split: str, first: int, last: int) -> tuple[Tensor, Tensor]:
        return self.take(split, torch.arange(first, last).expand(self._job.runs, -1))
