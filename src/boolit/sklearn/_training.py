"""Training an estimator's network: samples with weights, AdamW, one cycle of the learning rate, early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

# What is trained on: distinct samples with weights, and some of them set aside for validation.

Array = npt.NDArray[Any]


class Samples(NamedTuple):
    """Inputs, targets and how much each sample counts.

    Shape: ``(n, features)``, ``(n, …)`` and ``(n,)``.
    """

    x: Array
    y: Array
    weight: Array

    def take(self, rows: Array) -> Samples:
        """Some of the samples."""
        return Samples(self.x[rows], self.y[rows], self.weight[rows])


def distinct(samples: Samples) -> Samples:
    """The distinct samples of positive weight, in an order of their own, each with the weight of all its copies.

    So a weight of 2 is a sample given twice, to the last bit, and no sample is both trained on and validated with.

    Example:
        >>> x, y = np.array([[3.0], [3.0], [5.0]]), np.array([0, 0, 1])
        >>> distinct(Samples(x, y, np.array([1.0, 2.0, 0.0])))
        Samples(x=array([[3.]]), y=array([0]), weight=array([3.]))
    """
    samples = samples.take(np.flatnonzero(samples.weight))
    if not len(samples.x):
        raise ValueError("sample_weight is 0 for every sample; give at least one a positive weight")
    first, copies = _sample_groups(samples.x, samples.y)
    return samples.take(first)._replace(weight=np.bincount(copies, samples.weight, len(first)))


def _sample_groups(x: Array, y: Array) -> tuple[Array, Array]:
    """The first row of each group of equal rows, and the group of every row; compared as bytes, which is quickest."""
    rows = [np.ascontiguousarray(part.reshape(len(x), -1)).view(np.uint8) for part in (x, y)]
    joined = np.hstack(rows)
    _, first, group = np.unique(joined.view(f"V{joined.shape[1]}").ravel(), return_index=True, return_inverse=True)
    return first, group


def split(samples: Samples, fraction: float, drawn: np.random.RandomState) -> tuple[Samples, Samples]:
    """Training and validation samples, drawn at random along the sorted targets: both have about the same mix of them."""
    n = len(samples.x)
    if n < 2:
        raise ValueError(f"n_samples={n} cannot be split for early_stopping; give two distinct samples or more")
    held = min(max(round(fraction * n), 1), n - 1)
    order = drawn.permutation(n)
    order = order[np.argsort(samples.y.reshape(n, -1)[order, 0], kind="stable")]
    chosen = ((np.arange(held) + 0.5) * n / held).astype(int)
    return samples.take(np.delete(order, chosen)), samples.take(order[chosen])


def scaling(values: Array, weight: Array) -> tuple[Array, Array]:
    """Weighted mean and standard deviation of every column; 1 in place of the deviation of a constant column.

    Example:
        >>> scaling(np.array([[1.0, 7.0], [3.0, 7.0]]), np.ones(2))
        (array([2., 7.]), array([1., 1.]))
    """
    mean = np.average(values, 0, weight)
    deviation = np.sqrt(np.average(np.square(values - mean), 0, weight))
    # A constant column may have a deviation by rounding alone, and a nearly constant one none by underflow.
    return mean, np.where((np.ptp(values, 0) > 0) & (deviation > 0), deviation, 1.0)


# What the network learns: how each sample's output is penalised, and how all of them are scored.


class Objective(NamedTuple):
    """``loss(outputs, targets)`` gives a number per sample, ``score(outputs, targets, weight)`` one for all, 1 the best.

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


CLASSIFICATION = Objective(_cross_entropy, _accuracy, numeric=False)
REGRESSION = Objective(_squared_error, _r2, numeric=True)


# One plain loop: shuffled batches, AdamW, one cycle of the learning rate, and early stopping if there is validation.


class Tensors(NamedTuple):
    """Samples the network can read.

    Shape: ``(n, features)``, ``(n, …)`` and ``(n,)``.
    """

    x: Tensor
    y: Tensor
    weight: Tensor

    def to(self, device: torch.device) -> Tensors:
        """The same samples on a device."""
        return Tensors(*(part.to(device) for part in self))


class FitOptions(NamedTuple):
    """How to train."""

    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    patience: int
    verbose: bool


@dataclass
class History:
    """The mean training loss of every epoch, and the losses and scores of validation after it."""

    losses: list[float] = field(default_factory=list)
    validation_losses: list[float] = field(default_factory=list)
    validation_scores: list[float] = field(default_factory=list)

    @property
    def epochs_without_gain(self) -> int:
        """For how many epochs the validation loss has not been lower."""
        seen = self.validation_losses
        return len(seen) - 1 - seen.index(min(seen)) if seen else 0

    def __str__(self) -> str:
        line = f"epoch {len(self.losses)}: loss {self.losses[-1]:.6f}"
        return line + (f", validation score {self.validation_scores[-1]:.6f}" if self.validation_scores else "")


@torch.enable_grad()
def train(
    network: nn.Sequential,
    objective: Objective,
    training: Tensors,
    validation: Tensors | None,
    options: FitOptions,
    drawn: torch.Generator,
) -> History:
    """Trains the network in place; with validation samples it ends with the weights of its best epoch."""
    batches = max(1, len(training.x) // options.batch_size)
    optimiser = AdamW(_groups(network, options.weight_decay), lr=options.learning_rate, fused=True)
    schedule = OneCycleLR(optimiser, options.learning_rate, options.epochs * batches, cycle_momentum=False)
    history, best, device = History(), network.state_dict(), training.x.device
    while len(history.losses) < options.epochs and history.epochs_without_gain < options.patience:
        order = torch.randperm(len(training.x), generator=drawn).to(device)
        history.losses.append(_epoch(network, objective, training, order.tensor_split(batches), optimiser, schedule))
        if validation is not None:
            _validate(network, objective, validation, history)
            if history.epochs_without_gain == 0:
                best = {name: values.clone() for name, values in network.state_dict().items()}
        if options.verbose:
            print(history)
        _check_finite(history)
    network.load_state_dict(best)
    return history


def _epoch(
    network: nn.Sequential,
    objective: Objective,
    training: Tensors,
    batches: tuple[Tensor, ...],
    optimiser: AdamW,
    schedule: OneCycleLR,
) -> float:
    network.train()
    total = torch.zeros((), device=training.x.device)
    for rows in batches:
        x, y, weight = (part[rows] for part in training)
        loss = (objective.loss(network(x), y) * weight).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.detach() * len(rows)
    return total.item() / len(training.x)


@torch.no_grad()
def _validate(network: nn.Sequential, objective: Objective, validation: Tensors, history: History) -> None:
    network.eval()
    x, y, weight = validation
    outputs = network(x)
    history.validation_losses.append((objective.loss(outputs, y) * weight).mean().item())
    history.validation_scores.append(objective.score(outputs, y, weight).item())


def _check_finite(history: History) -> None:
    if not math.isfinite(history.losses[-1]):
        raise ValueError(
            f"the loss became {history.losses[-1]} in epoch {len(history.losses)}; "
            "lower learning_rate, or set standardise=True if the data have large values"
        )


def _groups(network: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Weight decay is for the matrices; biases and scales need none."""
    matrices = [parameter for parameter in network.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in network.parameters() if parameter.ndim <= 1]
    return [{"params": matrices, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
