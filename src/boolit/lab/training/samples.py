"""The samples of a job's runs: batches for training steps, and pieces of a split for evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor

from boolit.lab.common.random import generator, keys
from boolit.lab.training.job import Job

BLOCK_NUMEL = 2**20  # numbers of consecutive batches that are gathered together
CACHED_NUMEL = 2**22  # numbers of an evaluation split that is gathered once for all epochs: 16 MiB


class Batches:
    """The batches of every run. Each depends on the run's seed and the step only.

    Args:
        job: the runs.
        prepared_on: device on which samples are gathered, drawn, augmented and encoded.
        device: device of the networks.
        batch_last: whether flat samples are laid out with the batch last in memory, as stacked layers read them.
    """

    def __init__(self, job: Job, prepared_on: torch.device, device: torch.device, batch_last: bool) -> None:
        self._job, self._prepared_on, self._device, self._batch_last = job, prepared_on, device, batch_last
        self._augment = job.recipe.augment
        self._keys = {name: keys(job.seeds, name).to(prepared_on) for name in ("augmentation", "draw")}
        self._redraws = bool(self._augment or job.dataset.draw)
        self.rows = ResampledRows(job, prepared_on) if job.resamples else None

    def begin_epoch(self, epoch: int, runs: Tensor) -> None:
        """Draw the order of the samples of some runs."""
        job = self._job
        samples, used = len(job.dataset.splits["train"]), job.steps_per_epoch * job.batch
        orders = [torch.randperm(samples, generator=generator(job.seeds[run], "order", epoch))[:used] for run in runs.tolist()]
        self._order, self._runs = torch.stack(orders), runs
        self._block = range(0)

    def take(self, epoch: int, step: int) -> tuple[Tensor, Tensor]:
        """Return the samples and targets of a step, ``(runs, batch, …)`` each."""
        job = self._job
        if step not in self._block:
            self._gather(step)
        first = (step - self._block.start) * job.batch
        x, y = self._x[:, first : first + job.batch], self._y[:, first : first + job.batch]
        if self._redraws:
            runs, number = self._runs.to(self._prepared_on), epoch * job.steps_per_epoch + step
            if job.dataset.draw:
                x, y = job.dataset.draw(x, y, self._keys["draw"][runs], number)
            if self._augment:
                x = self._augment(x, self._keys["augmentation"][runs], number)
            x, y = job.dataset.encode(x).to(self._device), y.to(self._device)
        return x, y

    def _gather(self, step: int) -> None:
        # Blocks begin at the same steps wherever a training resumes, so that every product is the same call.
        job = self._job
        steps = max(1, BLOCK_NUMEL // (len(self._runs) * job.batch * math.prod(job.dataset.inputs)))
        start = step // steps * steps
        self._block = range(start, min(start + steps, job.steps_per_epoch))
        rows = self._order[:, start * job.batch : self._block.stop * job.batch]
        if self.rows:
            self._x, self._y = self.rows.take("train", self._runs, rows)
        else:
            train = job.dataset.splits["train"]
            self._x, self._y = gather(train.x, rows).to(self._prepared_on), gather(train.y, rows).to(self._prepared_on)
        if not self._redraws:
            x = job.dataset.encode(self._x)
            x = x.mT.contiguous().mT if self._batch_last and x.dim() == 3 else x
            self._x, self._y = x.to(self._device), self._y.to(self._device)


class ResampledRows:
    """Rows of runs that have their own splits, standardized by each run's training rows.

    Samples are stored once and standardized in pieces, so that runs on many splits train as one stack.
    """

    def __init__(self, job: Job, device: torch.device) -> None:
        assert job.dataset.pool is not None
        self._pool, self._device, self._resamples = job.dataset.pool, device, job.resamples
        self._regression = job.dataset.task == "regression"
        self._names = ("train", *job.eval_splits)
        self._cache: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    @cached_property
    def _rows(self) -> dict[str, Tensor]:
        device = self._pool.x.device
        return {name: torch.stack([each.rows[name] for each in self._resamples]).to(device) for name in self._names}

    @cached_property
    def _moments(self) -> tuple[Tensor, ...]:
        mean, scale = (torch.stack([getattr(each, name) for each in self._resamples]) for name in ("mean", "scale"))
        names = ("target_mean", "target_scale")
        of_target = (torch.tensor([getattr(each, name) for each in self._resamples]).view(-1, 1, 1) for name in names)
        return tuple(v.to(self._device) for v in (mean.unsqueeze(1), scale.unsqueeze(1), *of_target))

    def take(self, split: str, runs: Tensor, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return the samples and targets at places ``(runs, samples)`` of some runs' splits."""
        rows = self._rows[split][runs.to(self._pool.x.device)].gather(1, places.to(self._pool.x.device))
        x, y = (gather(values, rows).to(self._device) for values in (self._pool.x, self._pool.y))
        mean, scale, target_mean, target_scale = (values[runs.to(self._device)] for values in self._moments)
        x = x.sub_(mean).div_(scale).nan_to_num_(nan=0.0)  # a gap in a table becomes the center of its column
        return x, y.sub_(target_mean).div_(target_scale) if self._regression else y

    def pieces(self, split: str, runs: Tensor, size: int) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """Yield a split of some runs, ``size`` samples at a time."""
        samples = self._rows[split].shape[1]
        places = torch.arange(samples).expand(len(runs), -1)
        small = places.numel() * self._pool.x.shape[1] <= CACHED_NUMEL
        if small and (split not in self._cache or not torch.equal(self._cache[split][0], runs)):
            self._cache[split] = (runs, *self.take(split, runs, places))
        for first in range(0, samples, size):
            piece = slice(first, min(first + size, samples))
            if small:
                _, x, y = self._cache[split]
                yield piece, x[:, piece], y[:, piece]
            else:
                yield piece, *self.take(split, runs, places[:, piece])


def gather(stored: Tensor, rows: Tensor) -> Tensor:
    """Return stored values by rows ``(runs, samples)`` as ``(runs, samples, …)``."""
    flat = rows.flatten().to(stored.device)
    shape: Sequence[int] = (*rows.shape, *stored.shape[1:])
    if stored.shape[1:] == (1,):  # five times faster as a vector
        return stored.squeeze(1).index_select(0, flat).view(shape)
    return stored.index_select(0, flat).view(shape)
