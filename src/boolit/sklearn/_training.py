"""One plain loop: shuffled batches, AdamW, one cycle of the learning rate, and early stopping if there is validation."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import AdamW
from torch.optim.lr_scheduler import OneCycleLR

from boolit.sklearn._tasks import Task


class Tensors(NamedTuple):
    """Samples the network can read.

    Shape: ``(n, features)``, ``(n, …)`` and ``(n,)``.
    """

    x: Tensor
    y: Tensor
    weight: Tensor


class Recipe(NamedTuple):
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
    def waited(self) -> int:
        """For how many epochs the validation loss has not been lower."""
        seen = self.validation_losses
        return len(seen) - 1 - seen.index(min(seen)) if seen else 0

    def __str__(self) -> str:
        line = f"epoch {len(self.losses)}: loss {self.losses[-1]:.6f}"
        return line + (f", validation score {self.validation_scores[-1]:.6f}" if self.validation_scores else "")


@torch.enable_grad()
def train(
    network: nn.Sequential, task: Task, training: Tensors, validation: Tensors | None, recipe: Recipe, drawn: torch.Generator
) -> History:
    """Trains the network in place; with validation samples it ends with the weights of its best epoch."""
    batches = max(1, len(training.x) // recipe.batch_size)
    optimiser = AdamW(_groups(network, recipe.weight_decay), lr=recipe.learning_rate, fused=True)
    schedule = OneCycleLR(optimiser, recipe.learning_rate, recipe.epochs * batches, cycle_momentum=False)
    history, best = History(), network.state_dict()
    while len(history.losses) < recipe.epochs and history.waited < recipe.patience:
        order = torch.randperm(len(training.x), generator=drawn)
        history.losses.append(_epoch(network, task, training, order.tensor_split(batches), optimiser, schedule))
        if validation is not None:
            _validate(network, task, validation, history)
            best = copy.deepcopy(network.state_dict()) if history.waited == 0 else best
        if recipe.verbose:
            print(history)
        _check_finite(history)
    network.load_state_dict(best)
    return history


def _epoch(
    network: nn.Sequential,
    task: Task,
    training: Tensors,
    batches: tuple[Tensor, ...],
    optimiser: AdamW,
    schedule: OneCycleLR,
) -> float:
    network.train()
    total = torch.zeros(())
    for rows in batches:
        x, y, weight = (part[rows] for part in training)
        loss = (task.loss(network(x), y) * weight).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        total += loss.detach() * len(rows)
    return total.item() / len(training.x)


@torch.no_grad()
def _validate(network: nn.Sequential, task: Task, validation: Tensors, history: History) -> None:
    network.eval()
    x, y, weight = validation
    outputs = network(x)
    history.validation_losses.append((task.loss(outputs, y) * weight).mean().item())
    history.validation_scores.append(task.score(outputs, y, weight).item())


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
