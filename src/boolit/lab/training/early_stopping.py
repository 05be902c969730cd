"""Early stopping: the weights of every run's best epoch are kept, and a run that no longer improves is stopped."""

from __future__ import annotations

import torch
from torch import Tensor

NEVER = -1


class EarlyStopping:
    """Keeps the weights of every run's best epoch, and stops a run that has not improved for ``patience`` epochs.

    The best epoch is that of the lowest ``loss``; of a metric where higher is better, its negative is the loss.

    Shape: each of ``live`` is ``(runs, …)``; ``epoch``, ``loss`` and ``trained`` are ``(runs,)``. ``trained`` says how many
    epochs a run was trained for.
    """

    def __init__(self, live: dict[str, Tensor], runs: int, epochs: int, patience: int) -> None:
        self.patience, self._live, self._epochs = patience, live, epochs
        self.best = {name: values.clone() for name, values in live.items()}
        self.loss = torch.full((runs,), torch.inf, dtype=torch.float64)
        self.epoch = torch.full((runs,), NEVER, dtype=torch.int64)
        self.trained = torch.full((runs,), epochs, dtype=torch.int64)

    @property
    def running(self) -> Tensor:
        """Which runs have not been stopped.

        Shape: ``(runs,)``.
        """
        return self.trained == self._epochs

    def update(self, epoch: int, loss: Tensor) -> None:
        """Takes an epoch's validation loss into account; a loss that is not a number improves nothing."""
        better = self.running & (loss < self.loss)
        self.loss[better], self.epoch[better] = loss[better], epoch
        for name, values in self._live.items():
            there = better.to(values.device)
            self.best[name][there] = values[there]
        self.trained[self.running & (epoch - self.epoch >= self.patience)] = epoch + 1

    def restore_best(self) -> None:
        """Gives every run that had a best epoch the weights of it."""
        had = self.epoch != NEVER
        for name, values in self._live.items():
            there = had.to(values.device)
            values[there] = self.best[name][there]

    def state(self) -> dict[str, Tensor]:
        """What a checkpoint has to hold; changed in place."""
        return {"best.loss": self.loss, "best.epoch": self.epoch, "best.trained": self.trained} | {
            f"best.{name}": values for name, values in self.best.items()
        }
