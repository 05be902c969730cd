"""Losses and metrics of every run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from boolit.lab.datasets import Task

Loss = Literal["bce", "cross-entropy", "mse"]
Goal = Literal["max", "min"]

LOSS_OF_TASK: dict[Task, Loss] = {"binary": "bce", "classes": "cross-entropy", "regression": "mse"}
METRIC_OF_TASK: dict[Task, str] = {"binary": "accuracy", "classes": "accuracy", "regression": "rmse"}
TASKS_OF_LOSS: dict[Loss, tuple[Task, ...]] = {
    "bce": ("binary",),
    "cross-entropy": ("classes",),
    "mse": ("regression", "binary"),
}


@dataclass(frozen=True)
class MetricInfo:
    """Direction and format of a metric.

    Args:
        goal: ``max`` if higher values are better, else ``min``.
        percent: whether values are shown in percent.
    """

    goal: Goal
    percent: bool


RATE, ERROR = MetricInfo("max", percent=True), MetricInfo("min", percent=False)
IRAVEN = (
    *("center_single", "distribute_four", "distribute_nine"),
    *("in_center_single_out_center_single", "in_distribute_four_out_center_single"),
    *("left_center_single_right_center_single", "up_center_single_down_center_single"),
)
METRICS: dict[str, MetricInfo] = {
    "loss": ERROR,
    "rmse": ERROR,
    "accuracy": RATE,
    **{f"accuracy_{configuration}": RATE for configuration in IRAVEN},
    **dict.fromkeys(("auc", "auc2", "auc3", "seen", "unseen", "harmonic"), RATE),  # compositional zero-shot learning
    "patterns": MetricInfo("max", percent=False),  # solved sign patterns of parity
}


def losses(loss: Loss, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of every sample.

    Args:
        loss: its name.
        outputs: ``(runs, batch, outputs)``.
        targets: class numbers ``(runs, batch)`` for cross-entropy, else like the outputs.
    """
    if loss == "cross-entropy":
        # With the classes before the batch, as stacked layers leave them, it is 15 times faster than along the last axis.
        return F.cross_entropy(outputs.mT, targets, reduction="none")
    function = F.binary_cross_entropy_with_logits if loss == "bce" else F.mse_loss
    return function(outputs, targets, reduction="none")


def scores(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return what the task's metric averages: hits for accuracy, squared errors for RMSE. Shapes as in `losses`."""
    if task == "regression":
        return (outputs - targets).square()
    if task == "binary":
        return (outputs > 0) == (targets > 0.5)
    return outputs.mT.max(1).indices == targets  # argmax is seven times slower


def mean_of_run(values: Tensor) -> Tensor:
    """Return the mean of ``(runs, …)`` over everything but the runs."""
    return values.flatten(1).mean(1, dtype=torch.float32 if values.dtype == torch.bool else None)


def loss_and_score(loss: Loss, task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the mean loss and score of every run, ``(2, runs)``."""
    return torch.stack([mean_of_run(losses(loss, outputs, targets)), mean_of_run(scores(task, outputs, targets))])
