"""Losses and metrics of every run: on its own batch, on samples that all runs share, and on rows of its own."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.lab.common.devices import preparation_device, present_device
from boolit.lab.datasets import Split, Task
from boolit.lab.datasets.base import Encode, PixelScale, identity
from boolit.lab.models import Stacked
from boolit.lab.training.recipe import Loss
from boolit.logic.kernels.training import binary_hits, gather_bytes, gather_rows, hits

if TYPE_CHECKING:
    from boolit.lab.training.job import Job

EVALUATION_NUMEL = 2**22  # of the widest layer of all runs together; bounds the memory of an evaluation
CACHED_NUMEL = 2**22  # of the samples of all runs that are gathered once for all epochs: 16 MiB
LOSS_OF_TASK: dict[Task, Loss] = {"binary": "bce", "classes": "cross-entropy", "regression": "mse"}
METRIC_OF_TASK: dict[Task, str] = {"binary": "accuracy", "classes": "accuracy", "regression": "rmse"}
TASKS_OF_LOSS: dict[Loss, tuple[Task, ...]] = {
    "bce": ("binary",),
    "cross-entropy": ("classes",),
    "mse": ("regression", "binary"),
}


def losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """The loss of every sample of every run.

    Shape: ``(runs, batch, outputs)`` and targets ``(runs, batch)`` (cross-entropy) or as the outputs, to the targets' shape.
    """
    if loss == "cross-entropy":
        # With the classes before the batch, as the stacked layers leave them, it is 15 times faster than along the last axis.
        return F.cross_entropy(outputs.mT, targets, reduction="none")
    function = F.binary_cross_entropy_with_logits if loss == "bce" else F.mse_loss
    return function(outputs, targets, reduction="none")


def scores(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """What the task's metric is the mean of: hits for an accuracy, squared errors for an RMSE.

    Shape: as `losses`.
    """
    if task == "regression":
        return (outputs - targets).square()
    if task == "binary":
        return binary_hits(outputs, targets)
    return hits(outputs.mT, targets)


def mean_of_run(values: Tensor) -> Tensor:
    """The mean over everything but the runs.

    Shape: ``(runs, …)`` to ``(runs,)``.
    """
    return values.flatten(1).mean(1, dtype=torch.float32 if values.dtype == torch.bool else None)


def gather_samples(samples: Split, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Samples of every run and their targets, by their rows.

    Shape: ``(runs, samples)`` to ``(runs, samples, …)`` each.
    """
    return gather(samples.x, rows), gather(samples.y, rows)


def gather(stored: Tensor, rows: Tensor) -> Tensor:
    """Stored values of every run, by their rows.

    Shape: ``(count, …)`` and ``(runs, samples)``, to ``(runs, samples, …)``.
    """
    if stored.is_cpu and stored.shape[1:] == (1,):  # a binary target: single numbers are what torch gathers slowly
        return gather_rows(stored, rows)
    return stored.index_select(0, rows.flatten().to(stored.device)).view(*rows.shape, *stored.shape[1:])


def gather_encoded(stored: Tensor, rows: Tensor, encode: Encode) -> Tensor:
    """Encoded samples of every run, in one pass where the encoding is simple; flat ones laid out with the samples last.

    Shape: ``(count, …)`` and ``(runs, samples)``, to ``(runs, samples, …)``.
    """
    if stored.is_cpu and isinstance(encode, PixelScale) and stored.dtype == torch.uint8:
        return gather_bytes(stored, rows, encode.table)
    if stored.is_cpu and encode is identity and stored.dim() == 2:
        return gather_rows(stored, rows)
    x = encode(gather(stored, rows))
    return x.mT.contiguous().mT if x.dim() == 3 else x


def metric_of_scores(task: Task, mean_score: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """The task's metric from the mean of its scores; an RMSE in a unit, of all runs or of each."""
    return unit * mean_score.sqrt() if task == "regression" else mean_score


def finite(*values: Tensor) -> Tensor:
    """Which runs have finite numbers only.

    Shape: each ``(runs, …)``, to ``(runs,)``.
    """
    return torch.stack([value.flatten(1).isfinite().all(1).cpu() for value in values]).all(0)


def predict(job: Job, model: Stacked, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The outputs of every run on the same stored samples, piece by piece.

    Shape: ``(samples, …)`` to pieces ``(runs, samples of the piece, outputs)``.
    """
    size = max(1, EVALUATION_NUMEL // (job.runs * job.widest))
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for first in range(0, x.shape[0], size):
            piece = slice(first, min(first + size, x.shape[0]))
            shared = job.dataset.encode(x[piece].to(preparation_device(device))).to(device)
            yield piece, model(shared.expand(job.runs, *shared.shape))


def evaluate(job: Job, model: Stacked, split: Split, kept: Tensor | None = None) -> Tensor:
    """The mean loss and the mean score of every run on a split; the outputs go into ``kept`` if it is given.

    Shape: ``(2, runs)``; ``kept`` is ``(runs, samples, outputs)``.
    """

    def pieces() -> Iterator[tuple[Tensor, Tensor]]:
        for piece, outputs in predict(job, model, split.x):
            if kept is not None:
                kept[:, piece] = outputs
            targets = split.y[piece].to(outputs.device)
            yield outputs, targets.expand(job.runs, *targets.shape)

    return _loss_and_score(job, pieces(), len(split))


def _loss_and_score(job: Job, pieces: Iterator[tuple[Tensor, Tensor]], samples: int) -> Tensor:
    sums = torch.zeros(2, job.runs, dtype=torch.float64)
    for outputs, targets in pieces:
        values = (losses(job.loss, outputs, targets), scores(job.dataset.task, outputs, targets))
        sums += torch.stack([mean_of_run(value) for value in values]).cpu() * outputs.shape[1]
    return sums / samples


def probe_metrics(job: Job, model: Stacked) -> dict[str, Tensor]:
    """The metrics of the dataset's probes.

    Shape: ``(runs,)`` each.
    """
    metrics: dict[str, Tensor] = {}
    for probe in job.dataset.probes:
        outputs = torch.cat([piece.cpu() for _, piece in predict(job, model, probe.x)], 1)
        metrics |= {name: values.to(torch.float64) for name, values in probe.metrics(outputs).items()}
    return metrics


class ResampledRows:
    """The rows of runs that have their own: what each trains and is evaluated on, standardised by its own training rows.

    Samples are stored once, and gathered and standardised a block at a time: so runs on many splits are one stacked training.
    """

    def __init__(self, job: Job) -> None:
        assert job.dataset.pool is not None
        self._job, self._pool, self._device = job, job.dataset.pool, preparation_device(present_device())
        self._regress = job.dataset.task == "regression"
        self._cache: dict[str, tuple[Tensor, Tensor]] = {}

    @cached_property
    def _rows(self) -> dict[str, Tensor]:
        """Shape: ``(runs, rows of the split)`` each."""
        resamples = self._job.resamples
        names, device = ("train", *self._job.eval_splits), self._pool.x.device
        return {name: torch.stack([own.rows[name] for own in resamples]).to(device) for name in names}

    @cached_property
    def _moments(self) -> tuple[Tensor, Tensor]:
        """Shape: ``(runs, 1, features)`` twice."""
        mean, scale = (torch.stack([getattr(own, name) for own in self._job.resamples]) for name in ("mean", "scale"))
        return mean.unsqueeze(1).to(self._device), scale.unsqueeze(1).to(self._device)

    @cached_property
    def _target_moments(self) -> tuple[Tensor, Tensor]:
        """Shape: ``(runs, 1, 1)`` twice."""
        names = ("target_mean", "target_scale")
        mean, scale = (torch.tensor([getattr(own, name) for own in self._job.resamples]).view(-1, 1, 1) for name in names)
        return mean.to(self._device), scale.to(self._device)

    def take(self, split: str, places: Tensor) -> tuple[Tensor, Tensor]:
        """The samples at some places of each run's own split, and their targets.

        Shape: ``(runs, samples)`` to ``(runs, samples, features)`` and the targets'.
        """
        x, y = gather_samples(self._pool, self._rows[split].gather(1, places))
        x, y = x.to(self._device), y.to(self._device)
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
        job, samples, device = self._job, self._rows[split].shape[1], next(model.parameters()).device
        size = max(1, EVALUATION_NUMEL // (job.runs * job.widest))

        def pieces() -> Iterator[tuple[Tensor, Tensor]]:
            for first in range(0, samples, size):
                x, y = self._piece(split, slice(first, min(first + size, samples)))
                yield model(x.to(device)), y.to(device)

        model.eval()
        with torch.no_grad():
            return _loss_and_score(job, pieces(), samples)

    def _piece(self, split: str, piece: slice) -> tuple[Tensor, Tensor]:
        places = torch.arange(self._rows[split].shape[1], device=self._pool.x.device).expand(self._job.runs, -1)
        if split not in self._cache and places.numel() * self._pool.x.shape[1] <= CACHED_NUMEL:
            self._cache[split] = self.take(split, places)
        if split not in self._cache:
            return self.take(split, places[:, piece])
        x, y = self._cache[split]
        return x[:, piece], y[:, piece]
