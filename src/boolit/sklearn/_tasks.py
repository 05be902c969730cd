"""What the network learns: how each sample's output is penalised, and how all of them are judged."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor


class Task(NamedTuple):
    """``loss(outputs, targets)`` gives a number a sample, ``score(outputs, targets, weight)`` one for all, 1 the best.

    ``numeric`` says that the targets are numbers, not classes.
    """

    loss: Callable[[Tensor, Tensor], Tensor]
    score: Callable[[Tensor, Tensor, Tensor], Tensor]
    numeric: bool


def _cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs, targets, reduction="none")


def _accuracy(outputs: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    return ((outputs.argmax(1) == targets) * weight).sum() / weight.sum()


def _squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    return (outputs - targets).square().mean(1)


def _r2(outputs: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """The mean of the columns' R²; 0 for a column of one value, of which there is nothing to explain.

    Shape: ``(n, columns)`` twice and ``(n,)``, to ``()``.
    """
    mean = (weight @ targets) / weight.sum()
    spread, error = weight @ (targets - mean).square(), weight @ (targets - outputs).square()
    return torch.where(spread > 0, 1 - error / spread, 0.0).mean()


CLASSIFICATION = Task(_cross_entropy, _accuracy, numeric=False)
REGRESSION = Task(_squared_error, _r2, numeric=True)
