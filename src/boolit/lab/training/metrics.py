"""Losses and metrics of every run, on its own batch and on samples that runs share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.lab.datasets import Split, Task
from boolit.lab.models import Stacked
from boolit.lab.training.recipe import Loss

if TYPE_CHECKING:
    from boolit.lab.training.job import Job

# Losses and figures of every run on its own batch.

LOSS_OF_TASK: dict[Task, Loss] = {"binary": "bce", "classes": "cross-entropy", "regression": "mse"}
FIGURE_OF_TASK: dict[Task, str] = {"binary": "accuracy", "classes": "accuracy", "regression": "rmse"}
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
    """What the task's figure is the mean of: hits for an accuracy, squared errors for an RMSE.

    Shape: as `losses`.
    """
    if task == "regression":
        return (outputs - targets).square()
    if task == "binary":
        return (outputs > 0) == (targets > 0.5)
    return outputs.mT.max(1).indices == targets  # argmax is seven times slower


def mean_of_run(values: Tensor) -> Tensor:
    """The mean over everything but the runs.

    Shape: ``(runs, …)`` to ``(runs,)``.
    """
    return values.flatten(1).mean(1, dtype=torch.float32 if values.dtype == torch.bool else None)


def figure(task: Task, mean_score: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """The task's figure from the mean of its scores; an RMSE in a unit, of all runs or of each."""
    return unit * mean_score.sqrt() if task == "regression" else mean_score


def finite(*values: Tensor) -> Tensor:
    """Which runs have finite numbers only.

    Shape: each ``(runs, …)``, to ``(runs,)``.
    """
    return torch.stack([value.flatten(1).isfinite().all(1).cpu() for value in values]).all(0)


# What a cohort's networks are worth on samples they share.

NUMBERS_AT_ONCE = 2**22  # of the widest layer of all runs together; bounds the memory of an evaluation


def answers(job: Job, model: Stacked, x: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """The outputs of every run on the same stored samples, piece by piece.

    Shape: ``(samples, …)`` to pieces ``(runs, samples of the piece, outputs)``.
    """
    size = max(1, NUMBERS_AT_ONCE // (job.runs * job.widest))
    device = next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        for first in range(0, x.shape[0], size):
            piece = slice(first, min(first + size, x.shape[0]))
            shared = job.dataset.encode(x[piece]).to(device)
            yield piece, model(shared.expand(job.runs, *shared.shape))


def assess(job: Job, model: Stacked, split: Split, kept: Tensor | None = None) -> Tensor:
    """The mean loss and the mean score of every run on a split; the outputs go into ``kept`` if they are wanted.

    Shape: ``(2, runs)``; ``kept`` is ``(runs, samples, outputs)``.
    """
    sums = torch.zeros(2, job.runs, dtype=torch.float64)
    for piece, outputs in answers(job, model, split.x):
        if kept is not None:
            kept[:, piece] = outputs
        targets = split.y[piece].to(outputs.device)
        targets = targets.expand(job.runs, *targets.shape)
        values = (losses(job.loss, outputs, targets), scores(job.dataset.task, outputs, targets))
        sums += torch.stack([mean_of_run(value) for value in values]).cpu() * (piece.stop - piece.start)
    return sums / len(split)


def probed(job: Job, model: Stacked) -> dict[str, Tensor]:
    """The figures of the dataset's probes.

    Shape: ``(runs,)`` each.
    """
    figures: dict[str, Tensor] = {}
    for probe in job.dataset.probes:
        outputs = torch.cat([piece.cpu() for _, piece in answers(job, model, probe.x)], 1)
        figures |= {name: values.to(torch.float64) for name, values in probe.metrics(outputs).items()}
    return figures
