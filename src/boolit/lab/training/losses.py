"""Losses and figures of every run on its own batch."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.lab.data import Task
from boolit.lab.training.recipe import Loss

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
